"""Lookups in tables that stay in their files: only the rows of a batch are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.embedding import Bags, FeatureSpec, Ragged, to_bags
from sparrow.kernels.quantized import QuantizedTable

Table = npt.NDArray[Any] | QuantizedTable
PIECE: Final = 1 << 16
"""The ids whose rows are in memory at a time: a bag may have millions of them."""


def pooled(table: Table, bags: Bags) -> npt.NDArray[np.float32]:
    """Return each bag's rows, times their gains, summed: (num_bags, dim), as `sparrow.Embedder.lookup` computes it.

    >>> table = np.array([[1.0, 2.0], [10.0, 20.0]], np.float32)
    >>> ids, lengths = np.array([0, 1, 1], np.int32), np.array([2, 0, 1], np.int32)
    >>> pooled(table, Bags(ids, lengths, gains=None, valid=None, steady=False)).tolist()
    [[11.0, 22.0], [0.0, 0.0], [10.0, 20.0]]
    """
    if bags.lengths is None:
        return _scaled(table, bags, 0, len(bags.ids))
    ends = np.cumsum(bags.lengths, dtype=np.int64)
    sums = np.zeros((len(ends), table.shape[1]), np.float32)
    for begin, end in _pieces(ends):
        held = np.arange(np.searchsorted(ends, begin, "right"), np.searchsorted(ends, end - 1, "right") + 1)
        held = held[bags.lengths[held] > 0]  # empty bags have no entries: each other begins where the previous one ends
        starts = np.maximum(ends[held] - bags.lengths[held], begin) - begin
        sums[held] += np.add.reduceat(_scaled(table, bags, begin, end), starts, axis=0)
    return sums


def _scaled(table: Table, bags: Bags, begin: int, end: int) -> npt.NDArray[np.float32]:
    """Return the rows of some ids, times their gains: (end - begin, dim)."""
    ids = bags.ids[begin:end]
    if isinstance(table, QuantizedTable):
        rows = table.take(ids)
    else:
        rows = np.take(table, ids, axis=0, mode="clip").astype(np.float32)
    if bags.valid is not None:
        rows[~bags.valid[begin:end]] = 0.0
    if bags.gains is not None:
        rows *= bags.gains[begin:end, None]
    return rows


def _pieces(ends: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the ids in pieces of up to PIECE. A bag is cut at every PIECE of its own ids, wherever it is in a batch.

    >>> list(_pieces(np.array([3, PIECE, 2 * PIECE + 4, 2 * PIECE + 9])))
    [(0, 65536), (65536, 131072), (131072, 131081)]
    """
    begin, total = 0, int(ends[-1]) if len(ends) else 0
    while begin < total:
        end = min(begin + PIECE, total)
        whole = int(np.searchsorted(ends, end, "right"))
        if whole and ends[whole - 1] > begin:
            end = int(ends[whole - 1])
        yield begin, end
        begin = end


def ordered(table: Table, spec: FeatureSpec, ids: Any, length: int) -> npt.NDArray[np.float32]:
    """Return each sequence's rows one after the other, then their number: (batch, length * dim + 1)."""
    bags = to_bags(dataclasses.replace(spec, combiner="sum"), ids)
    lengths = np.ones(len(bags.ids), np.int64) if bags.lengths is None else bags.lengths
    rows = pooled(table, dataclasses.replace(bags, lengths=None, gains=None))
    return flat(rows, np.concatenate([[0], np.cumsum(lengths)]), length)


def ordered_bags(
    table: Table, spec: FeatureSpec, ids: Ragged, sizes: Ragged, pooling: str, length: int
) -> npt.NDArray[np.float32]:
    """Return the same for sequences of bags, whose elements have ``sizes`` ids each."""
    ends = np.concatenate([[0], np.cumsum(sizes.values[:, 0].astype(np.int64))])
    bags = to_bags(dataclasses.replace(spec, combiner=pooling), Ragged(ids.values, ends))  # type: ignore[arg-type]
    return flat(pooled(table, bags), sizes.offsets, length)


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
