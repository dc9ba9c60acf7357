"""The optax transformation that whitens: momentum, factors, update, and their places on a mesh."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, PartitionSpec

from sparrow.dense.paths import check_patterns, is_patterns, matching, path_names
from sparrow.dense.whitening.factors import balance, initial_factor, move_side, precondition
from sparrow.dense.whitening.layout import MatrixLayout, layout_of
from sparrow.fields import is_zero

if TYPE_CHECKING:
    from sparrow.dense.whitening.optimizers import Whitening

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


def scale_by_whitening(options: Whitening) -> optax.GradientTransformation:
    """Whitens each parameter's momentum with a pair of factors; see `Quad` for the equations."""

    def layouts(tree: Any, *, check: bool = False) -> list[MatrixLayout]:
        stacked = scanned(options.scanned_layers, tree, check=check)
        return [
            layout_of(
                leaf.shape,
                options.block_size,
                options.max_size_dense,
                scanned=stacked[name],
                multiple_of=options.pipeline_axis_size,
            )
            for name, leaf in zip(path_names(tree), jax.tree.leaves(tree), strict=True)
        ]

    def specs(tree: Any) -> list[PartitionSpec | None]:
        found = by_name("params_partition_specs", options.params_partition_specs, tree, default=None)
        return [found[name] for name in path_names(tree)]

    def init(params: optax.Params) -> WhiteningState:
        dtype, scale = options.array_dtype, options.preconditioner_init_scale
        structure = jax.tree.structure(params)

        def start(param: Any, layout: MatrixLayout, spec: PartitionSpec | None) -> _Leaf:
            right = jnp.ones((layout.blocks, 1), dtype)
            if not layout.vector:
                right = initial_factor(layout.columns, layout.valid_columns(), scale, dtype)
            left = initial_factor(layout.rows, layout.valid_rows(), scale, dtype)
            bounds = (jnp.zeros(layout.blocks, jnp.float32) for _ in range(2))
            return _placed(options, spec, _Leaf(jnp.zeros(param.shape, dtype), left, right, *bounds))

        leaves = list(map(start, jax.tree.leaves(params), layouts(params, check=True), specs(params)))
        return WhiteningState(jnp.zeros([], jnp.int32), *_fields(structure, leaves))

    def update(
        updates: optax.Updates, state: WhiteningState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, WhiteningState]:
        del params
        step = optax.safe_increment(state.step)
        gradients, structure = jax.tree.flatten(updates)
        leaves = [_Leaf(*parts) for parts in zip(*map(jax.tree.leaves, state[1:]), strict=True)]
        results = []
        for name, gradient, layout, spec, leaf in zip(
            path_names(updates), gradients, layouts(updates), specs(updates), leaves, strict=True
        ):
            moved = functools.partial(_update_leaf, options, layout)
            key = _key(options.seed, name, step)
            direction, leaf = on_mesh(moved, gradient, leaf, step, key, results=(gradient, leaf))
            results.append((constrain(direction, spec, "params_partition_specs"), _placed(options, spec, leaf)))
        return (
            jax.tree.unflatten(structure, [direction for direction, _ in results]),
            WhiteningState(step, *_fields(structure, [leaf for _, leaf in results])),
        )

    return optax.GradientTransformation(init, update)


def _fields(structure: Any, leaves: Sequence[_Leaf]) -> list[Any]:
    """Return one tree for each field of the leaves."""
    fields = zip(*leaves, strict=True) if leaves else [()] * len(_Leaf._fields)
    return [jax.tree.unflatten(structure, field) for field in fields]


def _placed(options: Whitening, spec: PartitionSpec | None, leaf: _Leaf) -> _Leaf:
    """Return the leaf with the momentum as its parameter lies, and the blocks spread over the pipeline axis."""
    mu = constrain(leaf.mu, spec, "params_partition_specs")
    if options.pipeline_axis_name is None:
        return leaf._replace(mu=mu)
    blocks = PartitionSpec(options.pipeline_axis_name)  # type: ignore[no-untyped-call]
    return _Leaf(mu, *(constrain(array, blocks, "pipeline_axis_name") for array in leaf[1:]))


def _key(seed: int, name: str, step: jax.Array) -> jax.Array:
    """Return a key of the parameter's own: it does not change when other parameters come, go or move.

    Made of its two words directly: to fold the name and the step in would be compiled anew for every parameter.
    """
    words = jnp.stack([np.uint32(zlib.crc32(f"{seed}/{name}".encode())), step.astype(jnp.uint32)])
    key: jax.Array = jax.random.wrap_key_data(words, impl="threefry2x32")
    return key


def _update_leaf(
    options: Whitening,
    layout: MatrixLayout,
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
        norms = jnp.linalg.norm(momentum.reshape(layout.layers, -1), axis=1)
        momentum = momentum / (_along_layers(norms, layout, momentum.shape) + 1e-6)

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
    limit = _MAX_GAIN ** (1 / 2 if layout.vector else 1 / 4)
    move = functools.partial(move_side, options, rate=rate, limit=limit)
    # Both sides move from the same A: neither sees the other's new factor.
    new_left, left_bound = move(left, leaf.left_bound, whitened, jnp.asarray(layout.valid_columns()))
    new_right, right_bound = right, leaf.right_bound
    if not layout.vector:
        new_right, right_bound = move(right, right_bound, whitened.mT, jnp.asarray(layout.valid_rows()))

    direction = layout.join(precondition(new_left, new_right, layout.split(momentum), dtype), gradient.shape)
    rms = jnp.sqrt(jnp.mean(jnp.square(direction).reshape(layout.layers, -1), axis=1))
    direction = direction * (_MAX_RMS / jnp.maximum(_along_layers(rms, layout, direction.shape), _MAX_RMS))
    if options.lr_style == "adam":
        direction = direction * _ADAM_STYLE
    moved = _Leaf(mu, new_left, new_right, left_bound, right_bound)
    return direction.astype(gradient.dtype), optax.tree.cast_like(moved, leaf)


def _along_layers(values: jax.Array, layout: MatrixLayout, shape: tuple[int, ...]) -> jax.Array:
    """Return one value per layer so that it multiplies an array of the parameter's ``shape``."""
    return values.reshape(layout.layers, *[1] * (len(shape) - 1)) if layout.layers > 1 else values[0]


def by_name(what: str, given: Any, tree: Any, default: Any) -> dict[str, Any]:
    """Return the value of each leaf of ``tree`` by its path; ``given`` is a tree of values, or a function to one.

    >>> by_name("scanned_layers", {"a": True, "b": False}, {"a": 0.0}, default=False)
    {'a': True}
    """
    names = path_names(tree)
    if given is None:
        return dict.fromkeys(names, default)
    found = given(tree) if callable(given) else given
    plain = jax.tree.map(lambda _: 0, found, is_leaf=_is_value)  # None and PartitionSpec are values too
    paths, values = path_names(plain), jax.tree.leaves(found, is_leaf=_is_value)
    of_path = dict(zip(paths, values, strict=True))
    for name in names:
        if name not in of_path:
            raise ValueError(f"{what} has no leaf '{name}'; it needs the structure of the parameters")
    return {name: default if of_path[name] is None else of_path[name] for name in names}


def scanned(given: Any, tree: Any, *, check: bool = False) -> dict[str, bool]:
    """Return which leaves of ``tree`` are stacks of layers, by patterns over paths, a tree or a function."""
    if is_patterns(given):
        if check:
            check_patterns([given], tree)
        given = matching(given)
    found = by_name("scanned_layers", given, tree, default=False)
    for (name, stacked), leaf in zip(found.items(), jax.tree.leaves(tree), strict=False):
        if not isinstance(stacked, bool):
            raise ValueError(f"scanned_layers must hold True or False for '{name}', got {stacked!r}")
        if stacked and not leaf.shape:
            raise ValueError(f"scanned_layers is True for '{name}', which is a scalar and has no axis of layers")
    return found


def constrain(array: jax.Array, spec: PartitionSpec | None, what: str) -> jax.Array:
    """Return the array laid out by ``spec`` over the mesh of the context; as it is without a spec."""
    if spec is None:
        return array
    mesh = jax.sharding.get_abstract_mesh()
    axes = [axis for entry in spec for axis in (entry if isinstance(entry, tuple) else (entry,)) if axis is not None]
    missing = [axis for axis in axes if axis not in mesh.axis_names]
    if mesh.empty or missing:
        found = "there is none" if mesh.empty else f"its axes are {', '.join(mesh.axis_names)}"
        raise ValueError(
            f"{what} names the mesh axis {', '.join(map(repr, missing or axes))}, so init and update must run inside "
            f"`with jax.set_mesh(mesh):` with a mesh that has it; {found}"
        )
    place: Any = jax.sharding.reshard if AxisType.Explicit in mesh.axis_types else jax.lax.with_sharding_constraint
    placed: jax.Array = place(array, spec)
    return placed


def on_mesh(function: Callable[..., Any], *arguments: Any, results: Any) -> Any:
    """Return ``function(*arguments)``; where axes of the mesh are explicit, the compiler places what is in between.

    ``results`` are arrays that lie as the results shall.
    """
    if AxisType.Explicit not in jax.sharding.get_abstract_mesh().axis_types:
        return function(*arguments)
    lies = jax.tree.map(lambda array: jax.typeof(array).sharding.spec, results)
    return jax.sharding.auto_axes(function, out_sharding=lies)(*arguments)


def _is_value(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, PartitionSpec)
