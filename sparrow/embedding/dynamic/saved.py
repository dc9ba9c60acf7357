"""The ids of one table on the host: for checkpoints, exports and people."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from sparrow.embedding.specs import TableSpec
from sparrow.kernels import ids
from sparrow.kernels.ids import TOTALS, IdState, Settings

Array = npt.NDArray[Any]
FIELDS: Final = {
    **{"ids": "u4", "last": "i4", "counts": "i4", "free": "i4", "waiting": "u4", "since": "i4", "seen": "i4"},
    **{"places": "i4", "spare": "i4", "quiet": "i4", "parts": "i4", "totals": "u4"},
}
"""The arrays of a table in a checkpoint, and their types."""


class Ids(NamedTuple):
    """Ids, (N,), and their rows in the table."""

    ids: npt.NDArray[np.uint64]
    rows: npt.NDArray[np.int32]


class Held(NamedTuple):
    """Counts of a table's vocabulary.

    Attributes:
      rows, used: rows that ids may have, and that they have.
      waiting: ids that are counted, and have no row yet.
      admitted, evicted, expired, refused, forgotten: since the beginning: ids that got a row, lost it to another one,
        came back too late, found no row, and were forgotten while they waited.
    """

    rows: int
    used: int
    waiting: int
    admitted: int
    evicted: int
    expired: int
    refused: int
    forgotten: int


@dataclasses.dataclass(frozen=True)
class SavedIds:
    """The ids of one table by row, as of a step.

    Attributes:
      ids: (rows, 2) uint32, by row of the table; rows that are reserved come first.
      last: (rows,) int32, the step in which each was used last; -1: the row is free.
      counts: (rows,) int32, occurrences, with evict "lfu" or "distance_lfu".
      free: (F,) int32, free rows of the table; the last of them is given out next.
      waiting: (W, 2) uint32, ids that wait for a row.
      since: (W,) int32, the step in which each was used last.
      seen: (W,) int32, their occurrences.
      places: (W,) int32, their places among the waiting ones.
      spare: free places, as ``free``.
      quiet: (2,) int32, the steps before which nothing expires, of rows and of waiting places.
      parts: (2,) int32, the devices that the ids are spread over, by their hash, and the groups on each; places count
        through all groups. Of older checkpoints (1,), with one group on each device.
      totals: (5, 2) uint32, as in `sparrow.kernels.ids.IdState`.
    """

    ids: Array
    last: Array
    counts: Array
    free: Array
    waiting: Array
    since: Array
    seen: Array
    places: Array
    spare: Array
    quiet: Array
    parts: Array
    totals: Array

    def arrays(self) -> dict[str, Array]:
        return dict(vars(self))

    @classmethod
    def of(cls, arrays: Mapping[str, Array], table: str) -> SavedIds:
        """Return the ids that `arrays` gave; raise ValueError where they are missing or damaged."""
        if not all(name in arrays for name in FIELDS):
            raise ValueError(f"the ids of table '{table}' were not saved; it had no dynamic vocabulary")
        held = cls(**{name: np.asarray(arrays[name]) for name in FIELDS})
        if held.parts.shape == (1,):
            held = dataclasses.replace(held, parts=np.append(held.parts, held.parts.dtype.type(1)))
        rows, waiting = len(held.last), len(held.since)
        free, spare = (len(held.free),), (len(held.spare),)
        shapes: list[tuple[int, ...]] = [(rows, 2), (rows,), (rows,), free, (waiting, 2), (waiting,), (waiting,)]
        shapes += [(waiting,), spare, (2,), (2,), (len(TOTALS), 2)]
        sound = all(
            array.shape == shape and array.dtype == np.dtype(kind)
            for array, shape, kind in zip(held.arrays().values(), shapes, FIELDS.values(), strict=True)
        )
        words = (held.ids[held.last >= 0], held.waiting) if sound else ()
        if not sound or any(len(np.unique(ids.numbers_of(own))) != len(own) for own in words):
            raise ValueError(f"the ids of table '{table}' are damaged: they do not fit each other")
        return held

    def live(self, table: TableSpec, step: int) -> Ids:
        """Return the ids that a lookup of step ``step`` finds."""
        used = self.last >= 0
        if table.dynamic is not None and table.dynamic.expire_steps:
            used &= step - self.last.astype(np.int64) <= table.dynamic.expire_steps
        rows = np.flatnonzero(used).astype(np.int32)
        return Ids(ids.numbers_of(self.ids[rows]), rows)

    def held(self, table: TableSpec) -> Held:
        reserved = 0 if table.dynamic is None else table.dynamic.reserved
        totals = {name: int(low) + (int(high) << 32) for name, (low, high) in zip(TOTALS, self.totals, strict=True)}
        return Held(len(self.last) - reserved, int((self.last >= 0).sum()), len(self.since), **totals)

    def unused(self) -> SavedIds:
        """Return the ids as of the first step of a run."""
        since, last = np.minimum(self.since, 0), np.minimum(self.last, 0)
        return dataclasses.replace(self, last=last, since=since, totals=np.zeros_like(self.totals))


class _Group(NamedTuple):
    """A group of a table's ids: its segment, begin and end of its waiting places, both pools, its number by device."""

    segment: ids.Segment
    waiting: tuple[int, int]
    pools: tuple[int, int]
    number: int

    def sizes(self) -> tuple[int, int]:
        """Return the number of rows, and of waiting places."""
        return self.segment.rows, self.waiting[1] - self.waiting[0]


class Placing(NamedTuple):
    """The places of a table's ids in the map of each of ``parts`` devices, which hold rows of its stack.

    Attributes:
      span: the rows of the table in the stack.
      settings: of the map of one device.
      number: of the table in its stack.
      logical: ``(device, local rows)`` to rows of the stack; None: one device, which has them in order.
    """

    table: TableSpec
    span: slice
    settings: Settings
    number: int
    parts: int
    logical: Callable[[int, Array], Array] | None

    def rows(self, part: int) -> tuple[Any, Any]:
        """Return the local rows of a device that belong to the table, and their numbers in it: indices of arrays."""
        if self.logical is None:
            return self.span, slice(None)
        local = np.arange(self.settings.rows)  # the table is alone in its stack
        rows = self.numbers(part, local)
        mine = rows < self.span.stop - self.span.start
        return local[mine], rows[mine]

    def numbers(self, part: int, local: Any) -> Any:
        """Return the numbers in the table of local rows that belong to it."""
        return (local if self.logical is None else self.logical(part, local)) - self.span.start

    def held(self, pools: Array, totals: Array) -> Held:
        """Return the counts, from these arrays of a map on the host, with the devices as their first axis."""
        free = [int(sum(pools[:, group.pools[kind], 0].sum() for group in self.groups)) for kind in (0, 1)]
        numbers = [group.pools[0] for group in self.groups]
        sums = ids.numbers_of(totals[:, numbers]).astype(object).sum(axis=(0, 1))
        rows, waiting = (self.parts * sum(group.sizes()[kind] for group in self.groups) for kind in (0, 1))
        return Held(rows, rows - free[0], waiting - free[1], *map(int, sums))

    @property
    def groups(self) -> list[_Group]:
        """The groups of the table's ids on each device."""
        end = int(self.settings.ends[self.number])
        count = self.settings.groups[self.number]
        every = [*zip(self.settings.segments, self.settings.waiting, strict=True)]
        return [
            _Group(*every[number], (number, len(every) + number), number - end + count)
            for number in range(end - count, end)
        ]


def saved_ids(place: Placing, state: IdState) -> SavedIds:
    """Return the ids of a table; every array of ``state`` is of the host, with the devices as its first axis."""
    size = place.span.stop - place.span.start
    words, last, counts = np.zeros((size, 2), np.uint32), np.full(size, -1, np.int32), np.zeros(size, np.int32)
    free, waiting, since, seen, places, spare = ([] for _ in range(6))
    totals: Any = 0
    groups = place.groups
    for part in range(place.parts):
        local, rows = place.rows(part)
        words[rows], last[rows], counts[rows] = (array[part][local] for array in (state.ids, state.last, state.counts))
        for group in groups:
            of_rows, of_waiting = (int(state.pools[part][pool, 0]) for pool in group.pools)
            first, (begin, end) = group.segment.begin, group.waiting
            before = (part * len(groups) + group.number) * (end - begin) - begin
            free.append(place.numbers(part, state.free[part][first : first + of_rows]))
            spare.append(state.free[part][begin : begin + of_waiting] + before)
            at = begin + np.flatnonzero(state.last[part][begin:end] >= 0)
            waiting.append(state.ids[part][at])
            since.append(state.last[part][at])
            seen.append(state.counts[part][at])
            places.append(at + before)
            totals = totals + ids.numbers_of(np.asarray(state.totals[part][group.pools[0]])).astype(object)
    steps = [[int(state.pools[part][pool, 1]) for pool in g.pools] for g in groups for part in range(place.parts)]
    quiet = np.min(steps, axis=0)
    numbers = np.array([int(total) for total in np.asarray(totals)], np.uint64)
    return SavedIds(
        *(words, last, counts, _joined(free), np.concatenate(waiting), _joined(since), _joined(seen)),
        *(_joined(places), _joined(spare), quiet.astype(np.int32), np.array([place.parts, len(groups)], np.int32)),
        ids.words_of(numbers),
    )


def _joined(arrays: list[Any]) -> Array:
    return np.concatenate(arrays).astype(np.int32)


def fitted(place: Placing, saved: SavedIds) -> tuple[SavedIds, Array | None]:
    """Return the ids for other places, and the old row of each new row, -1 for none; None: rows stay where they are.

    Raise ValueError where there are more ids than rows. Where a group alone has more, a table that evicts loses those
    that would be the first to leave.
    """
    size, was = place.span.stop - place.span.start, len(saved.last)
    reserved = 0 if place.table.dynamic is None else place.table.dynamic.reserved
    groups = place.groups
    parts = place.parts * len(groups)
    if saved.parts.tolist() == [place.parts, len(groups)] and (
        was == size or (parts == 1 and saved.last[size:].max(initial=-1) < 0)
    ):
        same = np.arange(size)
        return saved if was == size else _moved(saved, np.where(same < was, same, -1)), None
    used = np.flatnonzero(saved.last >= 0)
    owners = ids.part_of_numpy(ids.numbers_of(saved.ids[used]), parts)
    source = np.full(size, -1, np.int64)
    evicted = 0
    for part, group in itertools.product(range(place.parts), groups):
        mine = used[owners == part * len(groups) + group.number]
        rows = place.numbers(part, np.arange(group.segment.begin, group.segment.end))
        if len(mine) > len(rows):
            if group.segment.policy == ids.NONE or len(used) > size - reserved:
                several = "" if parts == 1 else f" of group {part * len(groups) + group.number} of {parts}"
                raise ValueError(
                    f"table '{place.table.name}' was saved with {len(used)} ids in {was} rows; {len(mine)} of them do "
                    f"not fit into the {len(rows)} rows{several} here; give it more rows"
                )
            evicted += len(mine) - len(rows)
            mine = mine[np.sort(_last_to_leave(group.segment.policy, saved, mine)[: len(rows)])]
        source[rows[: len(mine)]] = mine
        if reserved:
            source[place.numbers(part, group.segment.unknown)] = 0
    new, none = _moved(saved, np.where(source < reserved, -1, source)), np.zeros(0, np.int32)
    totals = ids.words_of(ids.numbers_of(saved.totals) + np.array([0, evicted, 0, 0, 0], np.uint64))
    return dataclasses.replace(new, places=none, spare=none, totals=totals), source


def _moved(saved: SavedIds, source: Array) -> SavedIds:
    """Return the ids in other rows; ``source``: the old row of each new one, -1 for none."""

    def moved(array: Array, fill: int) -> Array:
        there = source >= 0
        made = np.full((len(source), *array.shape[1:]), fill, array.dtype)
        made[there] = array[source[there]]
        return made

    held = {"ids": moved(saved.ids, 0), "last": moved(saved.last, -1), "counts": moved(saved.counts, 0)}
    return dataclasses.replace(saved, free=np.zeros(0, np.int32), **held)


def _last_to_leave(policy: int, saved: SavedIds, rows: Array) -> Array:
    """Return the order in which ``rows`` stay, by the definition of `sparrow.kernels.ids.types`."""
    last, often = saved.last[rows], saved.counts[rows].astype(np.float32)
    if policy == ids.DISTANCE_LFU:
        often /= (saved.last.max() - last + 1).astype(np.float32)
    return np.lexsort((last, often if policy >= ids.LFU else np.zeros_like(often)))[::-1]


def restored(settings: Settings, tables: Sequence[tuple[Placing, SavedIds]], parts: int) -> IdState:
    """Return the maps of all devices with the ids of `fitted`, on the host, devices as the first axis; not indexed."""
    made = []
    for part in range(parts):
        words, last = np.zeros((settings.places, 2), np.uint32), np.full(settings.places, -1, np.int32)
        counts = np.zeros(settings.places, np.int32)
        totals = np.zeros((len(settings.segments), len(TOTALS), 2), np.uint32)
        exact: list[tuple[int, int, Array, int]] = []  # pool, its first place, its free places, and its quiet step
        for place, saved in tables:
            local, rows = place.rows(part)
            words[local], last[local] = saved.ids[rows], saved.last[rows]
            local_of = np.full(len(saved.last), -1, np.int64)
            local_of[rows] = np.arange(local.start, local.stop) if isinstance(local, slice) else local
            order = local_of[saved.free] if len(saved.free) else np.zeros(0, np.int64)
            groups = place.groups
            every = parts * len(groups)
            if part == 0:
                totals[groups[0].pools[0]] = saved.totals
            if groups[0].segment.policy >= ids.LFU:
                counts[local] = saved.counts[rows]
            for segment, (begin, end), (of_rows, of_waiting), number in groups:
                own = part * len(groups) + number
                there = (order >= segment.begin) & (order < segment.end)
                exact.append((of_rows, segment.begin, order[there], int(saved.quiet[0])))
                each = end - begin
                if len(saved.places) + len(saved.spare) == each * every and len(saved.places) == len(saved.since):
                    mine = saved.places // max(each, 1) == own
                    places = begin + saved.places[mine] % max(each, 1)
                    spare = saved.spare[saved.spare // max(each, 1) == own]
                    exact.append((of_waiting, begin, begin + spare % max(each, 1), int(saved.quiet[1])))
                else:  # another number of places: the newest ids stay
                    mine = np.flatnonzero(ids.part_of_numpy(ids.numbers_of(saved.waiting), every) == own)
                    mine = np.sort(mine[np.argsort(-saved.since[mine].astype(np.int64), kind="stable")][:each])
                    places = begin + np.arange(len(mine))
                words[places], last[places], counts[places] = saved.waiting[mine], saved.since[mine], saved.seen[mine]
        held = ids.restored(settings, words, last, counts, totals)
        free, pools = np.array(held.free), np.array(held.pools)
        for pool, begin, order, quiet in exact:
            there = free[begin : begin + pools[pool, 0]]
            if np.array_equal(np.sort(order), np.sort(there)):  # the order in which a run that went on gives them out
                free[begin : begin + len(order)] = order
                pools[pool, 1] = quiet
        ordered: dict[str, Any] = {"free": free, "pools": pools}
        made.append(jax.tree.map(np.asarray, held._replace(**ordered)))
    stacked: ids.IdState = jax.tree.map(lambda *arrays: np.stack(arrays), *made)
    return stacked
