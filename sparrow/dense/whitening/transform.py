"""The optax transformation that whitens: momentum, factors, update; quad and skew differ in one rule only."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sparrow.dense.paths import path_names
from sparrow.dense.whitening.factors import FactorRule, balance, initial_factor, move_side, precondition
from sparrow.dense.whitening.layout import Layout, layout_of
from sparrow.dense.whitening.options import Whitening
from sparrow.fields import is_zero

_BALANCE_EVERY = 100
_ANNEAL_STEPS = 10_000
_MAX_RMS = 1.1
_ADAM_STYLE = 1 / 5
_MAX_GAIN = 1e12  # of QlᵀQl times QrᵀQr, so that the square of what it multiplies stays far from overflow


class WhiteningState(NamedTuple):
    """Every field but ``step`` is a tree with the structure of the parameters, one array per parameter."""

    step: jax.Array  # shape=(), dtype=int32
    mu: optax.Params  # momentum, the parameter's shape
    left: optax.Params  # factors of the rows: (blocks, n, n), or (blocks, n) where diagonal
    right: optax.Params  # factors of the columns
    left_bound: optax.Params  # L of each row factor: (blocks,) float32
    right_bound: optax.Params  # L of each column factor


class _Leaf(NamedTuple):
    """One parameter's part of the state."""

    mu: jax.Array
    left: jax.Array
    right: jax.Array
    left_bound: jax.Array
    right_bound: jax.Array


def scale_by_whitening(rule: FactorRule, options: Whitening) -> optax.GradientTransformation:
    """Whitens each parameter's momentum with a pair of factors; see `Quad` for the equations."""

    def layout(array: Any) -> Layout:
        return layout_of(array.shape, options.block_size, options.max_size_dense)

    def init(params: optax.Params) -> WhiteningState:
        dtype, scale = options.array_dtype, options.preconditioner_init_scale

        def left(param: Any) -> jax.Array:
            return initial_factor(layout(param).rows, layout(param).valid_rows(), scale, dtype)

        def right(param: Any) -> jax.Array:
            if layout(param).vector:
                return jnp.ones((1, 1), dtype)
            return initial_factor(layout(param).columns, layout(param).valid_columns(), scale, dtype)

        def bound(param: Any) -> jax.Array:
            return jnp.zeros(layout(param).blocks, jnp.float32)

        return WhiteningState(
            step=jnp.zeros([], jnp.int32),
            mu=jax.tree.map(lambda param: jnp.zeros(param.shape, dtype), params),
            left=jax.tree.map(left, params),
            right=jax.tree.map(right, params),
            left_bound=jax.tree.map(bound, params),
            right_bound=jax.tree.map(bound, params),
        )

    def update(
        updates: optax.Updates, state: WhiteningState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, WhiteningState]:
        del params
        step = optax.safe_increment(state.step)
        gradients, structure = jax.tree.flatten(updates)
        leaves = [_Leaf(*parts) for parts in zip(*map(jax.tree.leaves, state[1:]), strict=True)]
        results = [
            _update_leaf(rule, options, layout(gradient), gradient, leaf, step, _key(options.seed, name, step))
            for name, gradient, leaf in zip(path_names(updates), gradients, leaves, strict=True)
        ]
        fields = zip(*(leaf for _, leaf in results), strict=True) if results else [()] * len(_Leaf._fields)
        return (
            jax.tree.unflatten(structure, [direction for direction, _ in results]),
            WhiteningState(step, *(jax.tree.unflatten(structure, field) for field in fields)),
        )

    return optax.GradientTransformation(init, update)


def _key(seed: int, name: str, step: jax.Array) -> jax.Array:
    """Return a key of the parameter's own: it does not change when other parameters come, go or move.

    Made of its two words directly: to fold the name and the step in would be compiled anew for every parameter.
    """
    words = jnp.stack([np.uint32(zlib.crc32(f"{seed}/{name}".encode())), step.astype(jnp.uint32)])
    key: jax.Array = jax.random.wrap_key_data(words, impl="threefry2x32")
    return key


def _update_leaf(
    rule: FactorRule,
    options: Whitening,
    layout: Layout,
    gradient: jax.Array,
    leaf: _Leaf,
    step: jax.Array,
    key: jax.Array,
) -> tuple[jax.Array, _Leaf]:
    """Return the direction of one parameter, and its new state."""
    dtype = options.array_dtype
    t = step.astype(jnp.float32)

    mu = options.beta1 * leaf.mu.astype(jnp.float32) + (1 - options.beta1) * gradient.astype(jnp.float32)
    momentum = mu / (1 - options.beta1**t)
    if options.normalize_grads:
        momentum = momentum / (jnp.linalg.norm(momentum.ravel()) + 1e-6)

    left, right = leaf.left.astype(jnp.float32), leaf.right.astype(jnp.float32)
    if not layout.vector:
        left, right = jax.tree.map(
            lambda balanced, as_is: jnp.where(step % _BALANCE_EVERY == 0, balanced, as_is),
            balance(left, right),
            (left, right),
        )

    seen = momentum
    if not is_zero(options.noise_scale):
        # Drawn as a vector: XLA compiles that many times faster than a draw over several axes.
        seen = seen + options.noise_scale * jax.random.normal(key, (seen.size,)).reshape(seen.shape)
    whitened = precondition(left, right, layout.split(seen), dtype)
    rate = jnp.maximum(
        options.preconditioner_lr * jax.lax.rsqrt(1 + t / _ANNEAL_STEPS), options.preconditioner_lr_floor
    )
    moves: dict[str, Any] = {
        "rate": rate,
        "betaL": options.betaL,
        "limit": _MAX_GAIN ** (1 / 2 if layout.vector else 1 / 4),
        "norm": options.norm,
        "dtype": dtype,
    }
    # Both sides move from the same A: neither sees the other's new factor.
    new_left, left_bound = move_side(
        rule, left, leaf.left_bound, whitened, jnp.asarray(layout.valid_columns()), **moves
    )
    new_right, right_bound = right, leaf.right_bound
    if not layout.vector:
        new_right, right_bound = move_side(
            rule, right, right_bound, whitened.mT, jnp.asarray(layout.valid_rows()), **moves
        )

    direction = layout.join(precondition(new_left, new_right, layout.split(momentum), dtype), gradient.shape)
    rms = jnp.sqrt(jnp.mean(jnp.square(direction)))
    direction = direction * (_MAX_RMS / jnp.maximum(rms, _MAX_RMS))
    if options.lr_style == "adam":
        direction = direction * _ADAM_STYLE
    return direction.astype(gradient.dtype), _Leaf(
        mu.astype(leaf.mu.dtype),
        new_left.astype(leaf.left.dtype),
        new_right.astype(leaf.right.dtype),
        left_bound,
        right_bound,
    )
