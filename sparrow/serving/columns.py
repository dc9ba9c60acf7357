"""Predictions as users get them: the lists of several candidates cut to their lengths, and columns of Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow.data import CANDIDATES

Array = npt.NDArray[Any]


def cut_to_candidates(made: Mapping[str, Array]) -> dict[str, Array]:
    """Return the predictions without padding: of several candidates, an array for each row, as objects.

    >>> made = {"click": np.array([[0.5, 0.25], [0.75, 0.0]]), CANDIDATES: np.array([2, 1])}
    >>> [row.tolist() for row in cut_to_candidates(made)["click"]]
    [[0.5, 0.25], [0.75]]
    """
    if CANDIDATES not in made:
        return dict(made)
    counts = made[CANDIDATES]
    return {name: _cut(values, counts) for name, values in made.items() if name != CANDIDATES}


def _cut(values: Array, counts: Array) -> Array:
    rows = np.empty(len(values), object)
    for row, count in enumerate(counts):
        rows[row] = values[row, :count]
    return rows


def arrow_column(values: Array) -> Any:
    """Return an array as a column of Arrow; arrays of rows, and of candidates, are lists.

    >>> arrow_column(np.array([[1, 2], [3, 4]])).to_pylist()
    [[1, 2], [3, 4]]
    """
    if values.dtype != object:
        if values.ndim == 1:
            return pa.array(values)
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(row) for row in values], out=offsets[1:])
    entries = np.concatenate(values) if len(values) else np.zeros(0, np.float32)
    return pa.ListArray.from_arrays(pa.array(offsets), arrow_column(entries))
