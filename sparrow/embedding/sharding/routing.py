"""Routing on the host: which shard owns each entry of a device's part, and the arrays that are exchanged.

The owners' counts are known before anything is laid out: sizes are exact, so that no id can be dropped. Compiled code
does the work; NumPy gives the same arrays where there is no compiler.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.embedding.sharding.layout import Layout
from sparrow.embedding.sharding.parts import Part
from sparrow.kernels import feed
from sparrow.kernels.feed import routing as compiled

Ints = npt.NDArray[np.int32]


class PooledRoute(NamedTuple):
    """Where the entries of a part go.

    Attributes:
      owners: the owner of each entry; the number of shards for an id to ignore.
      entries: the number of entries by owner.
      sums: the number of bags with entries, by owner.
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
        compiled.route_pooled(library, part[:3], layout.routed, *made)
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
        compiled.route_rows(library, part.ids, layout.routed, *made)
    if layout.columns == 1:
        return made
    places = np.tile(made.places, layout.columns)
    return RowsRoute(_owners_of_pieces(layout, made.owners), places, _of_pieces(layout, made.rows))


def _owners_of_pieces(layout: Layout, owners: Ints) -> Ints:
    """Return the owners of all pieces, from those of the first."""
    shift = np.arange(layout.columns, dtype=np.int32)[:, None] * np.int32(layout.spans[0].over)
    return np.where(owners < layout.shards, owners + shift, np.int32(layout.shards)).reshape(-1).astype(np.int32)


def _of_pieces(layout: Layout, by_owner: Ints) -> Ints:
    """Return the numbers by owner of all pieces, from those of the first."""
    each = [np.roll(by_owner, p * layout.spans[0].over) for p in range(layout.columns)]
    total: Ints = np.sum(each, axis=0, dtype=np.int32)
    return total


class PooledArrays(NamedTuple):
    """The arrays of the pooled exchange for one device; `fill_pooled` fills them.

    Attributes:
      block: (shards, width) sent: local rows (entries); where bags are ragged, the sum of each entry (entries) and the
        first entry of each sum (sums); where there are gains, their bits (entries).
      bag_of: (shards, sums) the bag of each sum.
      offsets: (bags + 1,) where the sums of each bag begin in ``slots``; None: bags of one entry.
      slots: (shards * sums,) the sums of each bag; bags of one entry: (bags,) the sum that is the bag.
      slot_bags: (shards * sums,) the bag of each of ``slots``; None: bags of one entry.
    """

    block: Ints
    bag_of: Ints
    offsets: Ints | None
    slots: Ints
    slot_bags: Ints | None


class RowsArrays(NamedTuple):
    """The arrays of the rows exchange for one device; `fill_rows` fills them.

    Attributes:
      send: (shards, rows) the requested local rows.
      slots: (entries,) the place of each entry's row among all that arrive.
      back_offsets: (shards * rows + 1,) where the entries of each arriving row begin in the three below.
      back_slots, back_bags, back_gains: (entries,) sorted by slot; gains may be None.
    """

    send: Ints
    slots: Ints
    back_offsets: Ints
    back_slots: Ints
    back_bags: Ints
    back_gains: npt.NDArray[np.float32] | None


def fill_pooled(
    layout: Layout, part: Part, route: PooledRoute, entries: int, sums: int, weighted: bool, out: PooledArrays
) -> None:
    """Lay a part out, with the given room for entries and sums of each owner."""
    ragged = out.offsets is not None
    library = feed.library()
    if library is None:
        _fill_pooled(layout, part, route, entries, sums, weighted, out)
        return
    sizes = (layout.local_rows, part.num_bags, entries, sums, ragged, weighted)
    compiled.lay_out_pooled(library, part[:3], route.owners, layout.routed, sizes, tuple(out))


def fill_rows(layout: Layout, part: Part, route: RowsRoute, rows: int, out: RowsArrays) -> None:
    """Lay a part out, with the given room for rows of each owner."""
    library = feed.library()
    if library is None:
        _fill_rows(layout, part, route, rows, out)
        return
    sizes = (layout.local_rows, part.num_bags, len(out.slots), rows, out.back_gains is not None)
    compiled.lay_out_rows(library, part[:3], (route.owners, route.places), layout.routed, sizes, tuple(out))


def _empty(count: int) -> Ints:
    return np.empty(count, np.int32)


# ---- the same by NumPy ---------------------------------------------------------------------------------------------


def _owners(layout: Layout, part: Part) -> Ints:
    owners, _ = layout.place(part.ids)
    inside = part.ids.view(np.uint32) < layout.routed[0]
    return np.where(inside, owners, layout.shards).astype(np.int32)


def _by_owner(owners: Ints, shards: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Entries sorted by owner, in order, without those to ignore; and where each owner's begin."""
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
    layout: Layout, part: Part, route: PooledRoute, entries: int, sums: int, weighted: bool, out: PooledArrays
) -> None:
    shards, bags = layout.shards, _bags(part)
    order, begins = _by_owner(route.owners, shards)
    own, opens = route.owners[order], _opens(part, route.owners, order)
    at = np.arange(len(order)) - begins[own]  # the entry's place at its owner
    counted = np.cumsum(opens) - 1
    sums_before = np.concatenate([[0], np.cumsum(route.sums)])
    of_sum = counted - sums_before[own]  # the number of the entry's sum at its owner

    rows = out.block[:, :entries]
    rows[:] = layout.local_rows
    rows[own, at] = layout.place(part.ids[order])[1]
    if weighted:
        gains = out.block[:, -entries:].view(np.float32)
        gains[:] = 0.0
        gains[own, at] = 1.0 if part.gains is None else part.gains[order]
    out.bag_of[:] = part.num_bags
    out.bag_of[own[opens], of_sum[opens]] = bags[order][opens]
    slot = own[opens] * sums + of_sum[opens]
    first = order[opens]  # the entry that opens each sum
    if out.offsets is None or out.slot_bags is None:
        out.slots[:] = shards * sums
        out.slots[first] = slot
        return
    of_entries = out.block[:, entries : 2 * entries]
    of_entries[:] = sums - 1
    of_entries[own, at] = of_sum
    starts = out.block[:, 2 * entries : 2 * entries + sums]
    starts[:] = route.entries[:, None]
    starts[own[opens], of_sum[opens]] = at[opens]
    in_batch = np.argsort(first, kind="stable")
    out.slots[:], out.slot_bags[:] = shards * sums, part.num_bags
    out.slots[: len(slot)] = slot[in_batch]
    out.slot_bags[: len(slot)] = bags[first[in_batch]]
    out.offsets[0] = 0
    np.cumsum(np.bincount(bags[first], minlength=part.num_bags), out=out.offsets[1:])


def _fill_rows(layout: Layout, part: Part, route: RowsRoute, rows: int, out: RowsArrays) -> None:
    shards, count = layout.shards, len(part.ids)
    none = shards * rows
    real = route.owners < shards
    out.slots[:] = none
    out.slots[:count][real] = route.owners[real] * rows + route.places[real]
    slots = out.slots[:count]
    out.send[:] = layout.local_rows
    out.send.reshape(-1)[slots[real]] = layout.place(part.ids[real])[1]
    out.back_offsets[0] = 0
    np.cumsum(np.bincount(slots[real], minlength=none), out=out.back_offsets[1:])
    order = np.flatnonzero(real)[np.argsort(slots[real], kind="stable")]
    out.back_slots[:], out.back_bags[:] = none, part.num_bags
    out.back_slots[: len(order)] = slots[order]
    out.back_bags[: len(order)] = _bags(part)[order]
    if out.back_gains is not None:
        out.back_gains[:] = 0.0
        out.back_gains[: len(order)] = 1.0 if part.gains is None else part.gains[order]
