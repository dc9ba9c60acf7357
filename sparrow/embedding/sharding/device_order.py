"""`in_device_order`: sums over the examples of all devices, with the same bits however the devices belong to processes.

XLA adds the devices' parts of a sum by an all-reduce, whose order differs within a process and between processes. Here
the parts are exchanged, and added in the order of the devices. Two devices need nothing: a + b = b + a.

The function's operations are walked one by one. A dimension of examples is followed through them; a sum over it becomes
one part for each device, kept apart as long as only linear operations follow. So gradients of all parameters, which are
such parts, travel together at the end. Where the walk loses sight of a dimension, XLA adds as it does everywhere else:
the result is right in any case.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax.sharding import AxisType

from sparrow.embedding.sharding.shards import EVERYWHERE, Shards
from sparrow.jaxprs import walk

LINEAR: Final = frozenset({"copy", "neg", "reduce_sum", "reshape", "squeeze", "transpose"})
"""Operations of one array that may be applied to each device's part of a sum; `_is_linear` has the others."""


@dataclasses.dataclass
class Followed:
    """A value of the walk.

    Attributes:
      array: the array; None: it is only known as parts.
      dim: the dimension of the examples; None: it has none, or it is unknown.
      parts: (devices, ...) one part on each device, whose sum is the array; None: it is no such sum.
    """

    array: Any
    dim: int | None = None
    parts: Any = None


def in_device_order(
    shards: Shards | None, f: Callable[..., Any], *, split: Sequence[bool], examples: Collection[int]
) -> Callable[..., Any]:
    """Return ``f`` with its sums over examples in the order of the devices; ``f`` itself where the order is fixed.

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
        made = iter(_Walk(shards).results(closed, [Followed(*pair) for pair in zip(arrays, dims, strict=True)]))
        tree, rest, is_array = others
        return jax.tree.unflatten(
            tree, [next(made) if held else leaf for leaf, held in zip(rest, is_array, strict=True)]
        )

    return ordered


def _matters(shards: Shards) -> bool:
    """Whether the order matters, and all axes of the mesh are the shards' own."""
    mesh = shards.mesh
    is_auto = all(kind == AxisType.Auto for kind in mesh.axis_types)
    return shards.count > 2 and set(shards.axes) == set(mesh.axis_names) and is_auto


class _Walk:
    """A walk through the operations of a function, each of which is called again, or replaced."""

    def __init__(self, shards: Shards) -> None:
        self.shards, self.count = shards, shards.count

    def results(self, closed: Any, values: Sequence[Followed]) -> list[Any]:
        """Return the results; parts that are still apart go together."""
        made = walk(closed, values, self.equation, lambda number, _: Followed(number), _inlined)
        apart = {id(value): value for value in made if value.array is None}
        for value, array in zip(apart.values(), self.sums([v.parts for v in apart.values()]), strict=True):
            value.array = array
        return [value.array for value in made]

    def equation(self, equation: Any, given: Sequence[Followed]) -> list[Followed]:
        """Return the results of one operation."""
        name = equation.primitive.name
        if any(value.array is None for value in given) and _is_linear(equation, given):
            one = functools.partial(equation.primitive.bind, **equation.params)
            axes = tuple(None if value.parts is None else 0 for value in given)
            held = [value.array if value.parts is None else value.parts for value in given]
            return [Followed(None, None, jax.vmap(one, in_axes=axes)(*held))]
        for value in given:
            if value.array is None:
                (value.array,) = self.sums([value.parts])
        if name == "reduce_sum" and given[0].dim in equation.params["axes"] and _is_float(given[0].array):
            return [Followed(None, None, self.summed(given[0], equation.params["axes"]))]
        if name == "dot_general" and (made := self.dot(equation, given)) is not None:
            return [made]
        arrays = [value.array for value in given]
        with equation.ctx.manager:
            bound = equation.primitive.bind(*arrays, **equation.primitive.get_bind_params(equation.params))
        results = list(bound) if equation.primitive.multiple_results else [bound]
        if name == "shard_map":
            places = equation.params["out_specs"]
            return [Followed(*pair) for pair in zip(results, map(self.split_dim, places), strict=True)]
        return [Followed(result, _dim_of(equation, given, result, self.count)) for result in results]

    def split_dim(self, place: Any) -> int | None:
        """Return the dimension of a result of `shard_map` that is split over the devices."""
        return next((dim for dim, axes in enumerate(place) if axes in (self.shards.axes, self.shards.axes[0])), None)

    def sums(self, parts: Sequence[Any]) -> list[Any]:
        """Return the sum over the devices of each of ``parts``, on every device; by one exchange for all."""
        if not parts:
            return []

        def local(*own: jax.Array) -> list[jax.Array]:
            widened = (part.reshape(-1).astype(jnp.promote_types(part.dtype, jnp.float32)) for part in own)
            total = self.shards.total(jnp.concatenate([*widened]))
            ends = itertools.accumulate((part.size for part in own), initial=0)
            return [
                total[begin:end].reshape(part.shape[1:]).astype(part.dtype)
                for part, (begin, end) in zip(own, itertools.pairwise(ends), strict=True)
            ]

        made: list[Any] = self.shards.each(local, self.shards.split, EVERYWHERE)(*parts)
        return made

    def summed(self, value: Followed, axes: Sequence[int]) -> jax.Array:
        """(devices, ...) the sums of each device's examples."""
        assert value.dim is not None
        blocks = jnp.moveaxis(_blocks(value.array, value.dim, self.count), value.dim, 0)
        return blocks.sum(axis=tuple(axis + 1 for axis in axes))

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
                held = [Followed(value.array) for value in given]
                held[at].dim = own
                gathered = jax.lax.with_sharding_constraint(held[1 - at].array, self.shards.everywhere)  # type: ignore[no-untyped-call]
                held[1 - at].array = gathered
                result = equation.primitive.bind(held[0].array, held[1].array, **equation.params)
                return Followed(result, _dim_of(equation, held, result, self.count))
        sums, batches, blocks = [], [], []
        for value, dim, own, batch in zip(given, (left, right), contracted, batched, strict=True):
            blocks.append(_blocks(value.array, dim, self.count))
            sums.append(tuple(_moved(axis, dim) for axis in own))
            batches.append((dim, *(_moved(axis, dim) for axis in batch)))
        params = {**equation.params, "dimension_numbers": (tuple(sums), tuple(batches))}
        return Followed(None, None, equation.primitive.bind(*blocks, **params))


def _moved(axis: int, dim: int) -> int:
    """Return the number of an axis in `_blocks`; ``dim`` becomes the axis of one device's examples."""
    return axis if axis < dim else axis + 1


def _is_linear(equation: Any, given: Sequence[Followed]) -> bool:
    """Return whether the operation may be applied to the parts of the values that have some."""
    name, whole = equation.primitive.name, [value.array for value in given if value.parts is None]
    if name in ("add", "add_any"):
        return not whole
    if name in ("mul", "div"):  # by a number; a sum may not be a divisor
        return len(whole) == 1 and jnp.ndim(whole[0]) == 0 and (name == "mul" or given[0].parts is not None)
    if name == "convert_element_type":
        return bool(jnp.issubdtype(equation.params["new_dtype"], jnp.floating))
    return name in LINEAR


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


def _dim_of(equation: Any, given: Sequence[Followed], result: Any, count: int) -> int | None:
    """Return the dimension of the examples in a result of an operation."""
    tracked = next((value for value in given if value.dim is not None), None)
    shape = getattr(result, "shape", ())
    if tracked is None or not shape:
        return None
    found = _followed(equation, given, tracked, shape, count)
    return found if found is not None and shape[found] > 0 and shape[found] % count == 0 else None


def _followed(
    equation: Any, given: Sequence[Followed], tracked: Followed, shape: tuple[int, ...], count: int
) -> int | None:
    name, params, dim = equation.primitive.name, equation.params, tracked.dim
    assert dim is not None
    before = tracked.array.shape
    if name == "broadcast_in_dim":
        at = int(params["broadcast_dimensions"][dim])
        return at if shape[at] == before[dim] else None
    if name == "transpose":
        return list(params["permutation"]).index(dim)
    if name == "reshape":
        rows, sizes = math.prod(before[:dim]), [math.prod(shape[:at]) for at in range(len(shape))]
        return next((at for at, size in enumerate(sizes) if size == rows and shape[at] % count == 0), None)
    if name.startswith(("reduce_", "arg")) and "axes" in params:
        return None if dim in params["axes"] else dim - sum(axis < dim for axis in params["axes"])
    if name == "dot_general":
        return _of_product(params["dimension_numbers"], given)
    if name == "gather" and given[1].dim is not None:
        offsets = params["dimension_numbers"].offset_dims
        batch = [at for at in range(len(shape)) if at not in offsets]
        return batch[given[1].dim] if given[1].dim < len(batch) else None
    if len(shape) > dim and shape[dim] == before[dim]:
        return dim
    return next((at for at, size in enumerate(shape) if size == before[dim]), None)


def _of_product(numbers: Any, given: Sequence[Followed]) -> int | None:
    """Return the dimension of the examples in the result of a product: batch, then left, then right dimensions."""
    contracted, batched = numbers
    begin = len(batched[0])
    for value, own, batch in zip(given, contracted, batched, strict=True):
        free = [axis for axis in range(value.array.ndim) if axis not in own and axis not in batch]
        if value.dim in batch:
            return int(list(batch).index(value.dim))
        if value.dim in free:
            return begin + free.index(value.dim)
        begin += len(free)
    return None
