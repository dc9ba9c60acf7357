"""`in_device_order`: sums over the examples of all devices, with the same bits however the devices belong to processes.

XLA adds the devices' parts of a sum by an all-reduce, whose order is another one inside of a process than between
processes. Here the parts are exchanged, and added in the order of the devices. Two devices need nothing: a + b = b + a.

The function's operations are walked one by one. A dimension of examples is followed through them; a sum over it becomes
one part for each device, kept apart as long as only linear operations follow. So gradients of all parameters, which are
such parts, travel together at the end. Where the walk loses sight of a dimension, XLA adds as it does everywhere else:
the result is right in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType

from sparrow.embedding.sharding.following import Followed, dim_of
from sparrow.embedding.sharding.linear import LINEAR
from sparrow.embedding.sharding.shards import EVERYWHERE, Shards
from sparrow.jaxprs import is_literal


def in_device_order(
    shards: Shards | None, f: Callable[..., Any], *, split: Sequence[bool], examples: Collection[int]
) -> Callable[..., Any]:
    """Return ``f`` with its sums over examples in the order of the devices; ``f`` itself where nothing is to do.

    Args:
      shards: the devices.
      f: a function of trees of arrays.
      split: for each argument, whether it has arrays that are split over the devices by their first dimension.
      examples: the sizes of such dimensions.
    """
    if shards is None or not _matters(shards):
        return f
    sizes = {size for size in examples if size and size % shards.count == 0}

    def ordered(*args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
        others: list[Any] = []

        def arrays_only(*arrays: Any) -> Any:
            given = list(leaves)
            for i, array in zip(at, arrays, strict=True):
                given[i] = array
            made, tree = jax.tree.flatten(f(*jax.tree.unflatten(structure, given)))
            is_array = [isinstance(leaf, jax.Array) for leaf in made]
            others[:] = [tree, [None if held else leaf for leaf, held in zip(made, is_array, strict=True)], is_array]
            return [leaf for leaf, held in zip(made, is_array, strict=True) if held]

        arrays = [leaves[i] for i in at]
        closed = jax.make_jaxpr(arrays_only)(*arrays)
        flags = [own for arg, own in zip(args, split, strict=True) for _ in jax.tree.leaves(arg)]
        dims = [0 if flags[i] and leaves[i].ndim and leaves[i].shape[0] in sizes else None for i in at]
        made = iter(_Walk(shards).whole(closed, [Followed(*pair) for pair in zip(arrays, dims, strict=True)]))
        tree, rest, is_array = others
        return jax.tree.unflatten(
            tree, [next(made) if held else leaf for leaf, held in zip(rest, is_array, strict=True)]
        )

    return ordered


def _matters(shards: Shards) -> bool:
    """Whether an order is to be chosen, and this is the one to choose it: the mesh may have axes of the user's own."""
    return shards.count > 2 and set(shards.axes) == set(shards.mesh.axis_names) and _is_auto(shards)


def _is_auto(shards: Shards) -> bool:
    return all(kind == AxisType.Auto for kind in shards.mesh.axis_types)


class _Walk:
    """A walk through the operations of a function, each of which is called again, or replaced."""

    def __init__(self, shards: Shards) -> None:
        self.shards, self.count = shards, shards.count

    def whole(self, closed: Any, values: Sequence[Followed]) -> list[Any]:
        """Return the results; parts that are still apart go together."""
        made = self.run(closed.jaxpr, closed.consts, values)
        apart = {id(value): value for value in made if value.array is None}
        for value, array in zip(apart.values(), self.sums([v.parts for v in apart.values()]), strict=True):
            value.array = array
        return [value.array for value in made]

    def run(self, jaxpr: Any, consts: Sequence[Any], values: Sequence[Followed]) -> list[Followed]:
        """Return the values of the results."""
        held: dict[Any, Followed] = {}
        held |= zip(jaxpr.constvars, map(Followed, consts), strict=True)
        held |= zip(jaxpr.invars, values, strict=True)

        def read(atom: Any) -> Followed:
            return Followed(atom.val) if is_literal(atom) else held[atom]

        for equation in jaxpr.eqns:
            given = [read(atom) for atom in equation.invars]
            inner = _inlined(equation)
            made = self.equation(equation, given) if inner is None else self.run(inner.jaxpr, inner.consts, given)
            held |= zip(equation.outvars, made, strict=True)
        return [read(atom) for atom in jaxpr.outvars]

    def equation(self, equation: Any, given: Sequence[Followed]) -> list[Followed]:
        """Return the results of one operation."""
        name = equation.primitive.name
        if any(value.array is None for value in given) and name in LINEAR:
            parts = LINEAR[name](equation.params, [(value.array, value.parts) for value in given])
            if parts is not None:
                return [Followed(None, None, parts)]
        for value in given:
            self.force(value)
        if name == "reduce_sum" and given[0].dim in equation.params["axes"] and _is_float(given[0].array):
            return [Followed(None, None, self.summed(given[0], equation.params["axes"]))]
        if name == "dot_general" and (made := self.dot(equation, given)) is not None:
            return [made]
        arrays = [value.array for value in given]
        with equation.ctx.manager:
            bound = equation.primitive.bind(*arrays, **equation.primitive.get_bind_params(equation.params))
        results = list(bound) if equation.primitive.multiple_results else [bound]
        if equation.primitive.name == "shard_map":
            places = equation.params["out_specs"]
            return [Followed(*pair) for pair in zip(results, map(self.split_dim, places), strict=True)]
        return [Followed(result, dim_of(equation, given, result, self.count)) for result in results]

    def split_dim(self, place: Any) -> int | None:
        """Return the dimension of a result of `shard_map` that is split over the devices."""
        return next((dim for dim, axes in enumerate(place) if axes in (self.shards.axes, self.shards.axes[0])), None)

    def force(self, value: Followed) -> None:
        """Add the parts of a value."""
        if value.array is None:
            (value.array,) = self.sums([value.parts])

    def sums(self, parts: Sequence[Any]) -> list[Any]:
        """Return the sum over the devices of each of ``parts``, on every device; by one exchange for all."""
        if not parts:
            return []

        def local(*own: jax.Array) -> list[jax.Array]:
            flat = jnp.concatenate([part.reshape(-1).astype(_at_least_32(part)) for part in own])
            total = self.shards.total(flat)
            ends = [0]
            for part in own:
                ends.append(ends[-1] + part.size)
            return [
                total[begin:end].reshape(part.shape[1:]).astype(part.dtype)
                for part, begin, end in zip(own, ends[:-1], ends[1:], strict=True)
            ]

        made: list[Any] = self.shards.each(local, self.shards.split, EVERYWHERE)(*parts)
        return made

    def summed(self, value: Followed, axes: Sequence[int]) -> jax.Array:
        """(devices, ...) the sums of each device's examples."""
        assert value.dim is not None
        blocks = _blocks(value.array, value.dim, self.count)
        others = [axis if axis < value.dim else axis + 1 for axis in axes]
        return jnp.moveaxis(blocks, value.dim, 0).sum(
            axis=tuple(axis + 1 if axis < value.dim else axis for axis in others)
        )

    def dot(self, equation: Any, given: Sequence[Followed]) -> Followed | None:
        """Return a product that sums over examples; None: it does not."""
        (contracted, batched) = equation.params["dimension_numbers"]
        dims = [value.dim for value in given]
        pairs = [(left, right) for left, right in zip(*contracted, strict=True) if left == dims[0] or right == dims[1]]
        if not pairs or not _is_float(given[0].array) or not _is_float(given[1].array):
            return None
        (left, right), *_ = pairs
        for at, (dim, own) in enumerate(zip((left, right), dims, strict=True)):
            if own is not None and own != dim:  # split over other examples: this sum is made on each device
                other = given[1 - at]
                gathered = jax.lax.with_sharding_constraint(other.array, self.shards.everywhere)  # type: ignore[no-untyped-call]
                arrays = [given[0].array, given[1].array]
                arrays[1 - at] = gathered
                result = equation.primitive.bind(*arrays, **equation.params)
                held = [Followed(array, None) for array in arrays]
                held[at].dim = own
                return Followed(result, dim_of(equation, held, result, self.count))
        numbers = []
        blocks = []
        for value, dim, own, batch in zip(given, (left, right), contracted, batched, strict=True):
            blocks.append(_blocks(value.array, dim, self.count))

            def moved(axis: int, dim: int = dim) -> int:
                return axis if axis < dim else axis + 1

            numbers.append(([moved(axis) for axis in own], [dim, *map(moved, batch)]))
        dimension_numbers = (tuple(tuple(n[0]) for n in numbers), tuple(tuple(n[1]) for n in numbers))
        params = {**equation.params, "dimension_numbers": dimension_numbers}
        return Followed(None, None, equation.primitive.bind(*blocks, **params))


def _blocks(array: Any, dim: int, count: int) -> jax.Array:
    """Return the array with dimension ``dim`` as two: devices, and the examples of each."""
    shape = array.shape
    return jnp.reshape(array, (*shape[:dim], count, shape[dim] // count, *shape[dim + 1 :]))


def _inlined(equation: Any) -> Any:
    """Return the operations of a call that is nothing but its operations; None: it is more."""
    params = equation.params
    if equation.primitive.name in ("custom_jvp_call", "custom_vjp_call"):
        return params.get("call_jaxpr")
    if equation.primitive.name not in ("jit", "pjit", "closed_call"):
        return None
    places = (*params.get("in_shardings", ()), *params.get("out_shardings", ()))
    if any(isinstance(place, jax.sharding.Sharding) for place in places):
        return None
    return params.get("jaxpr", params.get("call_jaxpr"))


def _is_float(array: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(array), jnp.floating))


def _at_least_32(array: jax.Array) -> Any:
    return jnp.promote_types(array.dtype, jnp.float32)
