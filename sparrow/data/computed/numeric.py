"""Numbers of a column, for computed columns: the rows that have them, and their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.data.errors import Problems
from sparrow.data.expressions import Vector
from sparrow.data.values import flatten, numbers


def read_numbers(
    column: Any, name: str, separator: str | None, problems: Problems
) -> tuple[Vector, npt.NDArray[np.bool_]]:
    """Return the numbers of each row, and the mask of rows that lack one: missing, empty, or with a missing element.

    >>> import pyarrow as pa
    >>> vector, missing = read_numbers(pa.array([[1, 2], [], [3, None]]), "x", None, Problems(3))
    >>> vector.offsets.tolist(), missing.tolist()
    ([0, 2, 2, 4], [False, True, True])
    """
    flat = flatten(column, separator)
    parsed = numbers(flat.entries)
    if parsed.bad is not None:
        at = np.flatnonzero(parsed.bad)
        problems.add(name, flat.row_of(at), lambda i: parsed.why(int(at[i])))
    rows = len(column)
    missing = np.zeros(rows, np.bool_) if flat.offsets is None else np.diff(flat.offsets) == 0
    if parsed.missing is not None:
        missing[flat.row_of(np.flatnonzero(parsed.missing))] = True
    return Vector(parsed.values, flat.offsets), missing


def rows_of(vector: Vector, keep: npt.NDArray[np.bool_]) -> Vector:
    """Return the rows of a mask."""
    if vector.offsets is None:
        return Vector(vector.values[keep])
    lengths = np.diff(vector.offsets)
    offsets = np.zeros(int(keep.sum()) + 1, np.int64)
    np.cumsum(lengths[keep], out=offsets[1:])
    return Vector(vector.values[np.repeat(keep, lengths)], offsets)
