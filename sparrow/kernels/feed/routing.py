"""Calling the compiled routing of ids to the shards that own their rows.

``shape`` is always `Shape`. Arrays that are filled are given; `sparrow.embedding.sharding` makes
them, and states what they hold.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Entries = tuple[Ints, Ints | None, Floats | None]
"""Ids, bags (None: one entry each) and gains (None: all 1)."""
Shape = tuple[int, int, Ints]
"""Rows of the stack, shards, and (spans, 4): first row, first shard, number of shards and first local row of each."""


def route_pooled(library: ctypes.CDLL, entries: Entries, shape: Shape, owners: Ints, counts: Ints, sums: Ints) -> None:
    """Fill the owner of every entry, and the numbers of entries and of sums by owner."""
    ids, bags, _ = entries
    last = np.empty(shape[1], np.int32)
    library.sparrow_feed_route_pooled(ids, bags, len(ids), *_layout(shape), owners, counts, sums, last)


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
    given = *entries, len(entries[0]), owners, *_layout(shape)
    library.sparrow_feed_lay_out_pooled(*given, *map(int, sizes), *out, counters)


def route_rows(library: ctypes.CDLL, ids: Ints, shape: Shape, owners: Ints, places: Ints, counts: Ints) -> None:
    """Fill the owner of every entry, its row's place there, and the number of distinct rows by owner."""
    if not library.sparrow_feed_route_rows(ids, len(ids), *_layout(shape), owners, places, counts):
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
    given = *entries, len(entries[0]), *routed, *_layout(shape)
    library.sparrow_feed_lay_out_rows(*given, *map(int, sizes), *out, scratch)


def _layout(shape: Shape) -> tuple[int, int, Ints, int]:
    rows, shards, spans = shape
    return int(rows), int(shards), spans, len(spans)
