"""Routing on the host: which shard owns each entry of a device's part, and the arrays that are exchanged.

The owners' counts are known before anything is laid out: sizes are exact, so that no id can be dropped. Compiled code
does the work; NumPy gives the same arrays where there is no compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.embedding.sharding.exchange import Copied, Sent
from sparrow.embedding.sharding.layout import Ints, Layout
from sparrow.embedding.sharding.parts import Part, joined, lookups_of
from sparrow.kernels import Lookups, feed


class PooledRoute(NamedTuple):
    """Where the entries of a part go.

    Attributes:
      owners: the owner of each entry; the number of shards for an id to ignore.
      entries, sums: by owner, the numbers of entries, and of bags with entries.
    """

    owners: Ints
    entries: Ints
    sums: Ints


class RowsRoute(NamedTuple):
    """Where the distinct rows of a part are.

    Attributes:
      owners: the owner of each entry; the number of shards for an id to ignore.
      places: the place of each entry's row among the distinct rows of its owner, in order of first appearance.
      rows: the number of rows by owner.
    """

    owners: Ints
    places: Ints
    rows: Ints


def route_pooled(layout: Layout, part: Part) -> PooledRoute:
    """Find the owner of every entry, and count entries and sums; once for each piece of the rows, one after another."""
    library = feed.library()
    if library is None:
        made = _route_pooled(layout, part)
    else:
        made = PooledRoute(_empty(len(part.ids)), _empty(layout.shards), _empty(layout.shards))
        given = part.ids, part.bags, len(part.ids), *layout.routed
        library.sparrow_feed_route_pooled(*given, *made, _empty(layout.shards))
    if layout.columns == 1:
        return made
    return PooledRoute(_owners_of_pieces(layout, made.owners), *(_of_pieces(layout, own) for own in made[1:]))


def route_rows(layout: Layout, part: Part) -> RowsRoute:
    """Find the owner of every entry, and number the distinct rows of each owner; once for each piece of the rows."""
    library = feed.library()
    if library is None:
        made = _route_rows(layout, part)
    else:
        made = RowsRoute(_empty(len(part.ids)), _empty(len(part.ids)), _empty(layout.shards))
        if not library.sparrow_feed_route_rows(part.ids, len(part.ids), *layout.routed, *made):
            raise MemoryError(f"no memory to route {len(part.ids)} ids")
    if layout.columns == 1:
        return made
    places = np.tile(made.places, layout.columns)
    return RowsRoute(_owners_of_pieces(layout, made.owners), places, _of_pieces(layout, made.rows))


def _owners_of_pieces(layout: Layout, owners: Ints) -> Ints:
    """Return the owners of all pieces, from the owners of the first."""
    shift = np.arange(layout.columns, dtype=np.int32)[:, None] * np.int32(layout.spans[0].over)
    return np.where(owners < layout.shards, owners + shift, np.int32(layout.shards)).reshape(-1).astype(np.int32)


def _of_pieces(layout: Layout, by_owner: Ints) -> Ints:
    """Return the numbers by owner of all pieces, from the numbers of the first."""
    each = [np.roll(by_owner, p * layout.spans[0].over) for p in range(layout.columns)]
    total: Ints = np.sum(each, axis=0, dtype=np.int32)
    return total


def lay_out_pooled(
    layout: Layout, parts: Sequence[Part], routes: Sequence[PooledRoute], entries: int, sums: int, weighted: bool
) -> Sent:
    """Return the lookups of this process's shards, on the host. ``entries`` 0: every bag holds one entry.

    ``entries``, ``sums``: capacity for each owner.
    """
    shards, num_bags, ragged, library = layout.shards, parts[0].num_bags, entries > 0, feed.library()
    entries = entries or sums
    width = entries + (entries + sums if ragged else 0) + (entries if weighted else 0)
    block, bag_of = _empty(len(parts), shards, width), _empty(len(parts), shards * sums)
    slots = _empty(len(parts), shards * sums if ragged else num_bags)
    offsets, slot_bags = (_empty(len(parts), num_bags + 1), np.empty_like(slots)) if ragged else (None, None)
    for i, (part, route) in enumerate(zip(parts, routes, strict=True)):
        own = _of_part((block, bag_of, offsets, slots, slot_bags), i)
        if library is None:
            _fill_pooled(layout, part, route, entries, sums, weighted, own)
        else:
            given = *part[:3], len(part.ids), route.owners, *layout.routed
            sizes = map(int, (layout.local_rows, num_bags, entries, sums, ragged, weighted))
            library.sparrow_feed_lay_out_pooled(*given, *sizes, *own, _empty(3 * shards))
    home = Lookups(joined(slots), joined(slot_bags), joined(offsets), None, num_bags)
    back = Lookups(joined(bag_of), None, None, None, shards * sums)
    return Sent(joined(block), home, back, entries, sums, ragged, weighted)


def lay_out_rows(
    layout: Layout, parts: Sequence[Part], routes: Sequence[RowsRoute], entries: int, rows: int, weighted: bool
) -> Sent:
    """Return the lookups of this process's shards, on the host. ``entries`` 0: every bag holds one entry.

    ``rows``: capacity for each owner.
    """
    shards, num_bags, library = layout.shards, parts[0].num_bags, feed.library()
    send, slots = _empty(len(parts), shards, rows), _empty(len(parts), entries or num_bags)
    # The transposed lookup: where the entries of each arriving row begin; then, sorted by row, rows, bags and gains.
    back_offsets = _empty(len(parts), shards * rows + 1)
    back_slots, back_bags = np.empty_like(slots), np.empty_like(slots)
    back_gains = np.empty(slots.shape, np.float32) if weighted else None
    for i, (part, route) in enumerate(zip(parts, routes, strict=True)):
        own = _of_part((send, slots, back_offsets, back_slots, back_bags, back_gains), i)
        if library is None:
            _fill_rows(layout, part, route, rows, own)
        else:
            given = *part[:3], len(part.ids), route.owners, route.places, *layout.routed
            sizes = map(int, (layout.local_rows, num_bags, slots.shape[1], rows, weighted))
            library.sparrow_feed_lay_out_rows(*given, *sizes, *own, _empty(shards * rows))
    back = Lookups(joined(back_bags), joined(back_slots), joined(back_offsets), joined(back_gains), shards * rows)
    return Sent(joined(send), lookups_of(parts, slots, entries > 0, weighted), back, rows, rows)


def lay_out_copies(layout: Layout, parts: Sequence[Part], entries: int, weighted: bool) -> Copied:
    """Return the lookups of this process's shards, on the host. ``entries`` 0: every bag holds one entry."""
    ids = np.full((len(parts), entries or parts[0].num_bags), layout.local_rows, np.int32)
    for i, part in enumerate(parts):
        ids[i, : len(part.ids)] = np.where(part.ids.view(np.uint32) < layout.num_rows, part.ids, layout.local_rows)
    return Copied(lookups_of(parts, ids, entries > 0, weighted))


def _empty(*shape: int) -> Ints:
    return np.empty(shape, np.int32)


def _of_part(arrays: Sequence[Any], number: int) -> tuple[Any, ...]:
    return tuple(None if array is None else array[number] for array in arrays)


# ---- the same by NumPy ---------------------------------------------------------------------------------------------


def _owners(layout: Layout, part: Part) -> Ints:
    owners, _ = layout.place(part.ids)
    inside = part.ids.view(np.uint32) < layout.routed[0]
    return np.where(inside, owners, layout.shards).astype(np.int32)


def _by_owner(owners: Ints, shards: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the entries sorted by owner, in order, without ids to ignore; and where each owner has its first."""
    order = np.argsort(owners, kind="stable")
    begins = np.searchsorted(owners[order], np.arange(shards + 1))
    return order[: begins[-1]], begins


def _bags(part: Part) -> Ints:
    return np.arange(len(part.ids), dtype=np.int32) if part.bags is None else part.bags


def _opens(part: Part, owners: Ints, order: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return the mask of the first entries of each bag, of entries sorted by owner."""
    bags, own = _bags(part)[order], owners[order]
    opens = np.ones(len(order), bool)
    opens[1:] = (bags[1:] != bags[:-1]) | (own[1:] != own[:-1])
    return opens


def _route_pooled(layout: Layout, part: Part) -> PooledRoute:
    owners = _owners(layout, part)
    order, begins = _by_owner(owners, layout.shards)
    opens = _opens(part, owners, order)
    sums = np.bincount(owners[order][opens], minlength=layout.shards)
    return PooledRoute(owners, np.diff(begins).astype(np.int32), sums.astype(np.int32))


def _route_rows(layout: Layout, part: Part) -> RowsRoute:
    owners = _owners(layout, part)
    places = np.zeros(len(owners), np.int32)
    rows = np.zeros(layout.shards, np.int32)
    for owner in range(layout.shards):
        at = np.flatnonzero(owners == owner)
        distinct, first, which = np.unique(part.ids[at], return_index=True, return_inverse=True)
        rank = np.empty(len(distinct), np.int32)
        rank[np.argsort(first, kind="stable")] = np.arange(len(distinct))
        places[at] = rank[which]
        rows[owner] = len(distinct)
    return RowsRoute(owners, places, rows)


def _fill_pooled(
    layout: Layout, part: Part, route: PooledRoute, entries: int, sums: int, weighted: bool, out: tuple[Any, ...]
) -> None:
    block, bag_of, offsets, slots, slot_bags = out
    shards, bags = layout.shards, _bags(part)
    order, begins = _by_owner(route.owners, shards)
    own, opens = route.owners[order], _opens(part, route.owners, order)
    at = np.arange(len(order)) - begins[own]  # the entry's place at its owner
    counted = np.cumsum(opens) - 1
    sums_before = np.concatenate([[0], np.cumsum(route.sums)])
    of_sum = counted - sums_before[own]  # the number of the entry's sum at its owner

    rows = block[:, :entries]
    rows[:] = layout.local_rows
    rows[own, at] = layout.place(part.ids[order])[1]
    if weighted:
        gains = block[:, -entries:].view(np.float32)
        gains[:] = 0.0
        gains[own, at] = 1.0 if part.gains is None else part.gains[order]
    slot = own[opens] * sums + of_sum[opens]
    bag_of[:] = part.num_bags
    bag_of[slot] = bags[order][opens]
    first = order[opens]  # the entry that opens each sum
    if offsets is None:
        slots[:] = shards * sums
        slots[first] = slot
        return
    of_entries = block[:, entries : 2 * entries]
    of_entries[:] = sums - 1
    of_entries[own, at] = of_sum
    starts = block[:, 2 * entries : 2 * entries + sums]
    starts[:] = route.entries[:, None]
    starts[own[opens], of_sum[opens]] = at[opens]
    in_batch = np.argsort(first, kind="stable")
    slots[:], slot_bags[:] = shards * sums, part.num_bags
    slots[: len(slot)] = slot[in_batch]
    slot_bags[: len(slot)] = bags[first[in_batch]]
    offsets[0] = 0
    np.cumsum(np.bincount(bags[first], minlength=part.num_bags), out=offsets[1:])


def _fill_rows(layout: Layout, part: Part, route: RowsRoute, rows: int, out: tuple[Any, ...]) -> None:
    send, slots, back_offsets, back_slots, back_bags, back_gains = out
    shards, count = layout.shards, len(part.ids)
    none = shards * rows
    real = route.owners < shards
    slots[:] = none
    own = slots[:count]
    own[real] = route.owners[real] * rows + route.places[real]
    send[:] = layout.local_rows
    send.reshape(-1)[own[real]] = layout.place(part.ids[real])[1]
    back_offsets[0] = 0
    np.cumsum(np.bincount(own[real], minlength=none), out=back_offsets[1:])
    order = np.flatnonzero(real)[np.argsort(own[real], kind="stable")]
    back_slots[:], back_bags[:] = none, part.num_bags
    back_slots[: len(order)] = own[order]
    back_bags[: len(order)] = _bags(part)[order]
    if back_gains is not None:
        back_gains[:] = 0.0
        back_gains[: len(order)] = 1.0 if part.gains is None else part.gains[order]
