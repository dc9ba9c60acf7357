"""Calling the compiled routing of ids to the shards that own their rows.

``shape`` is always `Shape`. Arrays that are filled are given; `sparrow.embedding.sharding` makes
them, and states what they hold.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.kernels.feed.ordering import address

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Entries = tuple[Ints, Ints | None, Floats | None]
"""Ids, bags (None: one entry each) and gains (None: all 1)."""
Shape = tuple[int, int, Ints]
"""Rows of the stack, shards, and (spans, 4): first row, first shard, number of shards and first local row of each."""


def route_pooled(library: ctypes.CDLL, entries: Entries, shape: Shape, owners: Ints, counts: Ints, sums: Ints) -> None:
    """Fill the owner of every entry, and the numbers of entries and of sums by owner."""
    ids, bags, _ = entries
    library.sparrow_feed_route_pooled(
        *_pointers(ids, bags),
        *_numbers(len(ids)),
        *_shape(shape),
        *_pointers(owners, counts, sums, np.empty(shape[1], np.int32)),
    )


def lay_out_pooled(
    library: ctypes.CDLL,
    entries: Entries,
    owners: Ints,
    shape: Shape,
    sizes: tuple[int, ...],
    out: tuple[Ints | None, ...],
) -> None:
    """Fill block, bag_of, offsets, slots and slot_bags.

    ``sizes``: local rows, bags, entries and sums for each owner, whether bags are ragged, whether gains are sent.
    """
    counters = np.empty(3 * shape[1], np.int32)
    library.sparrow_feed_lay_out_pooled(
        *_pointers(*entries),
        *_numbers(len(entries[0])),
        *_pointers(owners),
        *_shape(shape),
        *_numbers(*sizes),
        *_pointers(*out, counters),
    )


def route_rows(library: ctypes.CDLL, ids: Ints, shape: Shape, owners: Ints, places: Ints, counts: Ints) -> None:
    """Fill the owner of every entry, its row's place there, and the number of distinct rows by owner."""
    given = [*_pointers(ids), *_numbers(len(ids)), *_shape(shape)]
    if not library.sparrow_feed_route_rows(*given, *_pointers(owners, places, counts)):
        raise MemoryError(f"no memory to route {len(ids)} ids")


def lay_out_rows(
    library: ctypes.CDLL,
    entries: Entries,
    routed: tuple[Ints, Ints],
    shape: Shape,
    sizes: tuple[int, ...],
    out: tuple[Any, ...],
) -> None:
    """Fill send, slots, back_offsets, back_slots, back_bags and back_gains.

    ``sizes``: local rows, bags, entries with padding, rows for each owner, whether there are gains.
    """
    scratch = np.empty(shape[1] * sizes[3], np.int32)
    library.sparrow_feed_lay_out_rows(
        *_pointers(*entries),
        *_numbers(len(entries[0])),
        *_pointers(*routed),
        *_shape(shape),
        *_numbers(*sizes),
        *_pointers(*out, scratch),
    )


def _pointers(*arrays: npt.NDArray[Any] | None) -> list[ctypes.c_void_p | None]:
    return [None if array is None else address(array) for array in arrays]


def _shape(shape: Shape) -> list[Any]:
    rows, shards, spans = shape
    return [*_numbers(rows, shards), *_pointers(spans), *_numbers(len(spans))]


def _numbers(*values: int) -> list[ctypes.c_int64]:
    return [ctypes.c_int64(value) for value in values]
