"""Equations that optax does not have, or has in another form than PyTorch: one `scale_by_*` each.

State is a tree like the parameters, in the parameters' dtypes. Updates keep the gradients' dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sparrow.rules import bias_correction, divide_or_zero, step_count

Number = float | jax.Array


class TraceState(NamedTuple):
    """State of `dampened_trace`."""

    step: jax.Array  # shape=(), dtype=int32
    trace: Any


def dampened_trace(momentum: Number, dampening: Number) -> optax.GradientTransformation:
    """PyTorch's momentum with dampening; the first gradient comes in undampened.

    ``trace' = momentum * trace + (1 - dampening) * g`` after a first ``trace' = g``; the update is ``trace'``.

    Reference: ``torch.optim.SGD``.
    """

    def init(params: Any) -> TraceState:
        return TraceState(jnp.zeros((), jnp.int32), optax.tree.zeros_like(params))

    def update(updates: Any, state: TraceState, params: Any = None) -> tuple[Any, TraceState]:
        del params
        weight = jnp.where(state.step == 0, 1.0, 1.0 - dampening)
        trace = _map(lambda g, t: momentum * t + weight * g, updates, state.trace)
        return _like(trace, updates), TraceState(optax.safe_increment(state.step), _like(trace, state.trace))

    return optax.GradientTransformation(init, update)


class AdagradState(NamedTuple):
    """State of `scale_by_adagrad`."""

    accumulator: Any


def scale_by_adagrad(initial_accumulator: Number, eps: Number) -> optax.GradientTransformation:
    """``accumulator' = accumulator + g**2``; the update is ``g / (sqrt(accumulator') + eps)``.

    eps stands outside the root, as in PyTorch and in the rules for tables (``optax.adagrad`` has it inside). Without
    history and gradient the update is 0, even with eps 0.

    Duchi, Hazan, Singer, Adaptive Subgradient Methods, JMLR 12, 2011.
    """

    def init(params: Any) -> AdagradState:
        return AdagradState(optax.tree.full_like(params, initial_accumulator))

    def update(updates: Any, state: AdagradState, params: Any = None) -> tuple[Any, AdagradState]:
        del params
        accumulator = _map(lambda g, a: a + jnp.square(g), updates, state.accumulator)
        scaled = _map(lambda g, a: divide_or_zero(g, jnp.sqrt(a) + eps), updates, accumulator)
        return _like(scaled, updates), AdagradState(_like(accumulator, state.accumulator))

    return optax.GradientTransformation(init, update)


class AmsgradState(NamedTuple):
    """State of `scale_by_amsgrad`."""

    step: jax.Array  # shape=(), dtype=int32
    mu: Any
    nu: Any
    nu_max: Any


def scale_by_amsgrad(
    beta1: Number, beta2: Number, eps: Number, eps_root: Number = 0.0, mu_dtype: Any = None
) -> optax.GradientTransformation:
    """Adam whose second moment never falls: the maximum is taken over the raw moment, as in PyTorch. ::

        mu'     = beta1 * mu + (1 - beta1) * g
        nu'     = beta2 * nu + (1 - beta2) * g**2
        nu_max' = max(nu_max, nu')
        update  = mu' / (1 - beta1**t) / (sqrt(nu_max' / (1 - beta2**t) + eps_root) + eps)

    ``optax.scale_by_amsgrad`` takes the maximum over the bias-corrected moment, which weighs the first steps more.

    Reddi, Kale, Kumar, On the Convergence of Adam and Beyond, https://arxiv.org/abs/1904.09237
    """

    def init(params: Any) -> AmsgradState:
        return AmsgradState(
            step=jnp.zeros((), jnp.int32),
            mu=optax.tree.zeros_like(params, dtype=mu_dtype),
            nu=optax.tree.zeros_like(params),
            nu_max=optax.tree.zeros_like(params),
        )

    def update(updates: Any, state: AmsgradState, params: Any = None) -> tuple[Any, AmsgradState]:
        del params
        count = step_count(state.step)
        mu = _map(lambda g, m: beta1 * m + (1 - beta1) * g, updates, state.mu)
        nu = _map(lambda g, n: beta2 * n + (1 - beta2) * jnp.square(g), updates, state.nu)
        nu_max = jax.tree.map(jnp.maximum, nu, state.nu_max)
        mu_weight, nu_weight = bias_correction(beta1, count), bias_correction(beta2, count)

        def scaled(m: jax.Array, n: jax.Array) -> jax.Array:
            return divide_or_zero(m / mu_weight, jnp.sqrt(n / nu_weight + eps_root) + eps)

        new_state = AmsgradState(
            step=optax.safe_increment(state.step),
            mu=_like(mu, state.mu),
            nu=_like(nu, state.nu),
            nu_max=_like(nu_max, state.nu_max),
        )
        return _like(jax.tree.map(scaled, mu, nu_max), updates), new_state

    return optax.GradientTransformation(init, update)


class CenteredState(NamedTuple):
    """State of `scale_by_deviation`."""

    mean: Any
    square: Any


def scale_by_deviation(
    alpha: Number, eps: Number, initial_accumulator: Number = 0.0, *, eps_in_root: bool
) -> optax.GradientTransformation:
    """RMSprop's centered form: the gradient over its running standard deviation. ::

        mean'   = alpha * mean   + (1 - alpha) * g
        square' = alpha * square + (1 - alpha) * g**2
        update  = g / (sqrt(square' - mean'**2) + eps)        eps inside the root with ``eps_in_root``

    The variance is kept from falling below 0 by rounding, which gives NaN in ``optax.scale_by_stddev`` and in PyTorch
    once a gradient has been constant for long.

    Graves, Generating Sequences With Recurrent Neural Networks, https://arxiv.org/abs/1308.0850
    """

    def init(params: Any) -> CenteredState:
        return CenteredState(optax.tree.zeros_like(params), optax.tree.full_like(params, initial_accumulator))

    def update(updates: Any, state: CenteredState, params: Any = None) -> tuple[Any, CenteredState]:
        del params
        mean = _map(lambda g, m: alpha * m + (1 - alpha) * g, updates, state.mean)
        square = _map(lambda g, s: alpha * s + (1 - alpha) * jnp.square(g), updates, state.square)

        def scaled(g: jax.Array, m: jax.Array, s: jax.Array) -> jax.Array:
            variance = jnp.maximum(s - jnp.square(m), 0)
            root = jnp.sqrt(variance + eps) if eps_in_root else jnp.sqrt(variance) + eps
            return divide_or_zero(g, root)

        new_state = CenteredState(_like(mean, state.mean), _like(square, state.square))
        return _like(_map(scaled, updates, mean, square), updates), new_state

    return optax.GradientTransformation(init, update)


def _map(function: Callable[..., jax.Array], updates: Any, *trees: Any) -> Any:
    return jax.tree.map(function, updates, *trees)


def _like(tree: Any, target: Any) -> Any:
    return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), tree, target)
