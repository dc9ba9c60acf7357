"""`Vector`: the values of a variable or a step of an expression, one or several numbers per row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.data.values import offsets_of, places_of

Floats = npt.NDArray[np.float64]


class Uneven(Exception):
    """Raised where lists of one row differ in length. ``rows``: the rows, as a mask."""

    def __init__(self, rows: npt.NDArray[np.bool_]) -> None:
        super().__init__()
        self.rows = rows


class Vector(NamedTuple):
    """Numbers of all rows.

    Attributes:
      values: (rows,), or (entries,) one row after the other.
      offsets: (rows + 1,) where each row begins; None: one number per row.
    """

    values: Floats
    offsets: npt.NDArray[np.int64] | None = None

    def as_lists(self) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return values and offsets; a single number is a list of one."""
        return self.values, np.arange(len(self.values) + 1) if self.offsets is None else self.offsets


def elementwise(function: Callable[..., Any], arguments: Sequence[Vector]) -> Vector:
    """Call a NumPy function on every number; single numbers are repeated beside lists.

    >>> a, b = Vector(np.array([1.0, 2.0])), Vector(np.array([1.0, 1.0, 5.0]), np.array([0, 2, 3]))
    >>> elementwise(np.add, [a, b]).values.tolist()
    [2.0, 2.0, 7.0]
    """
    values, offsets = aligned(arguments)
    return Vector(np.asarray(function(*values), np.float64), offsets)


def aligned(arguments: Sequence[Vector]) -> tuple[list[Floats], npt.NDArray[np.int64] | None]:
    """Return the values of all arguments, number beside number."""
    lists = [argument.offsets for argument in arguments if argument.offsets is not None]
    if not lists:
        return [argument.values for argument in arguments], None
    lengths = np.diff(lists[0])
    for other in lists[1:]:
        if (uneven := np.diff(other) != lengths).any():
            raise Uneven(uneven)
    return [a.values if a.offsets is not None else np.repeat(a.values, lengths) for a in arguments], lists[0]


def padded(arguments: list[Vector], fill: float) -> list[Vector]:
    """Return the arguments with ``fill`` behind the lists that are shorter than another one of their row.

    >>> a, b = Vector(np.array([1.0, 2.0]), np.array([0, 2])), Vector(np.array([5.0]), np.array([0, 1]))
    >>> [vector.values.tolist() for vector in padded([a, b], 0.0)]
    [[1.0, 2.0], [5.0, 0.0]]
    """
    lengths = [np.diff(argument.offsets) for argument in arguments if argument.offsets is not None]
    if len(lengths) < 2:
        return arguments
    offsets = offsets_of(np.maximum.reduce(lengths))

    def filled(vector: Vector) -> Vector:
        if vector.offsets is None:
            return vector
        values = np.full(int(offsets[-1]), fill)
        values[places_of(offsets[:-1], np.diff(vector.offsets))] = vector.values
        return Vector(values, offsets)

    return [filled(argument) for argument in arguments]


def by_row(ufunc: Any, values: Floats, offsets: npt.NDArray[np.int64], empty: float) -> Floats:
    """Reduce the numbers of each row; ``empty``: the result of a row without numbers.

    >>> by_row(np.add, np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3]), 0.0).tolist()
    [3.0, 0.0, 4.0]
    """
    made = np.full(len(offsets) - 1, empty)
    there = np.diff(offsets) > 0
    if there.any():
        made[there] = ufunc.reduceat(values, offsets[:-1][there])
    return made
