"""Lookups in tables that stay in their files: only the rows of a batch are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.embedding import Bags


def pooled(table: npt.NDArray[Any], bags: Bags) -> npt.NDArray[np.float32]:
    """Return each bag's rows, times their gains, summed: (num_bags, dim), as `sparrow.Embedder.lookup` computes it.

    >>> table = np.array([[1.0, 2.0], [10.0, 20.0]], np.float32)
    >>> ids, lengths = np.array([0, 1, 1], np.int32), np.array([2, 0, 1], np.int32)
    >>> pooled(table, Bags(ids, lengths, gains=None, valid=None, steady=False)).tolist()
    [[11.0, 22.0], [0.0, 0.0], [10.0, 20.0]]
    """
    rows = np.take(table, bags.ids, axis=0, mode="clip").astype(np.float32)
    if bags.valid is not None:
        rows[~bags.valid] = 0.0
    if bags.gains is not None:
        rows *= bags.gains[:, None]
    if bags.lengths is None:
        return rows
    sums = np.zeros((len(bags.lengths), table.shape[1]), np.float32)
    filled = bags.lengths > 0
    if filled.any():  # empty bags have no entries: each remaining bag begins where the previous one ends
        starts = np.cumsum(bags.lengths) - bags.lengths
        sums[filled] = np.add.reduceat(rows, starts[filled], axis=0)
    return sums
