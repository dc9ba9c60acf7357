"""The dimension of the examples, followed through the operations of a function. Where it is lost, nothing is wrong."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any


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


def dim_of(equation: Any, given: Sequence[Followed], result: Any, count: int) -> int | None:
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
