"""Lookups in tables that stay in their files: only the rows of a batch are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.embedding import PackedBatch
from sparrow.kernels import Lookups
from sparrow.kernels.quantized import QuantizedTable

Table = npt.NDArray[Any] | QuantizedTable
PIECE: Final = 1 << 16
"""The ids whose rows are in memory at a time: a bag may have millions of them."""


def activations(
    packed: PackedBatch, tables: Mapping[str, Table], orders: Mapping[str, tuple[npt.NDArray[Any], int]]
) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    """Yield the input that a packed batch gives to each lookup.

    ``tables``: by stack; ``orders``: of lookups in order, where each example begins, and the most elements of one.
    """
    for stack, groups in packed.groups:
        rows, start = pooled(tables[stack], packed.lookups[stack]), 0
        for group in groups:
            stop = start + len(group.features) * group.num_bags
            block = rows[start:stop].reshape(group.num_bags, len(group.features), rows.shape[1])
            start = stop
            for i, name in enumerate(group.features):
                yield name, flat(block[:, i], *orders[name]) if name in orders else block[:, i]


def pooled(table: Table, lookups: Lookups) -> npt.NDArray[np.float32]:
    """Return each bag's rows, times their gains, summed: (num_bags, dim), as `sparrow.Embedder.lookup` computes it.

    >>> table = np.array([[1.0, 2.0], [10.0, 20.0]], np.float32)
    >>> ids, offsets = np.array([0, 1, 1, 2, 2], np.int32), np.array([0, 2, 2, 3], np.int32)  # 2 is no row: padding
    >>> pooled(table, Lookups(ids, None, offsets, None, 3)).tolist()
    [[11.0, 22.0], [0.0, 0.0], [10.0, 20.0]]
    """
    if lookups.offsets is None:
        return _scaled(table, lookups, 0, len(lookups.ids))
    offsets = np.asarray(lookups.offsets, np.int64)
    starts, ends = offsets[:-1], offsets[1:]
    sums = np.zeros((len(ends), table.shape[1]), np.float32)
    for begin, end in _pieces(ends):
        held = np.arange(np.searchsorted(ends, begin, "right"), np.searchsorted(ends, end - 1, "right") + 1)
        held = held[ends[held] > starts[held]]  # empty bags have no entries: each other begins where the last one ends
        first = np.maximum(starts[held], begin) - begin
        sums[held] += np.add.reduceat(_scaled(table, lookups, begin, end), first, axis=0)
    return sums


def _scaled(table: Table, lookups: Lookups, begin: int, end: int) -> npt.NDArray[np.float32]:
    """Return the rows of some entries, times their gains: (end - begin, dim). An id that is no row has zeros."""
    ids: Any = lookups.ids[begin:end]
    if isinstance(table, QuantizedTable):
        rows = table.take(ids)
    else:
        rows = np.take(table, ids, axis=0, mode="clip").astype(np.float32)
        rows[ids >= len(table)] = 0.0
    if lookups.gains is not None:
        rows *= np.asarray(lookups.gains[begin:end])[:, None]
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


def flat(values: npt.NDArray[Any], offsets: npt.NDArray[Any], length: int) -> npt.NDArray[np.float32]:
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
