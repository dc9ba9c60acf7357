"""Lookups in tables that stay in their files: only the rows of a batch are read."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.embedding import Bags, FeatureSpec, to_bags


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


def ordered(table: npt.NDArray[Any], spec: FeatureSpec, ids: Any, length: int) -> npt.NDArray[np.float32]:
    """Return each sequence's rows one after the other, then their number: (batch, length * dim + 1)."""
    bags = to_bags(dataclasses.replace(spec, combiner="sum"), ids)
    lengths = np.ones(len(bags.ids), np.int64) if bags.lengths is None else bags.lengths
    rows = pooled(table, dataclasses.replace(bags, lengths=None, gains=None))
    return flat(rows, np.concatenate([[0], np.cumsum(lengths)]), length)


def flat(values: npt.NDArray[Any], offsets: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.float32]:
    """Return sequences as `sparrow.Sequence.flat` has them, with at most ``length`` elements: the last.

    >>> flat(np.array([[1.0], [2.0], [3.0]]), np.array([0, 2, 2, 3]), 2).tolist()
    [[1.0, 2.0, 2.0], [0.0, 0.0, 0.0], [3.0, 0.0, 1.0]]
    """
    dim = values.shape[1]
    kept = np.minimum(np.diff(offsets), length)
    made = np.zeros((len(kept), length, dim), np.float32)
    place = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)  # of an element in its sequence
    rows = np.repeat(offsets[1:] - kept, kept) + place
    made[np.repeat(np.arange(len(kept)), kept), place] = values[rows]
    return np.concatenate([made.reshape(len(kept), length * dim), kept[:, None].astype(np.float32)], axis=1)


def width_of(length: int | None, dim: int) -> int:
    """Return the width of an input: one vector, or at most ``length`` of them in order, then their number."""
    return dim if length is None else length * dim + 1
