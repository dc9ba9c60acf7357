"""The map from 64-bit ids to rows: its settings, its state, and the definition that every backend follows.

A stack of tables has one map. Its ids come in segments: a segment is a table, or a group of its ids, with its own range
of rows; `group_of` returns the segment of an id. The same id in two segments is two ids. Beyond the rows of the stack,
the map has places for waiting ids: a *place* is a row, or one of those; a *pool* is the range of rows of a segment, or
its range of waiting places.

`find` returns the row of each id. `assign(step)` is the definition below; the order of entries decides only who gets
which row, and who gets one at all where some are refused.

1. *Known.* An id with a row whose ``step - last <= expire`` is used: ``last`` becomes ``step``. In a segment with LFU
   or DISTANCE_LFU each of its occurrences adds 1 to its count.
2. *Returned.* An id with a row that has expired keeps the row, is used, starts its count anew, and is fresh.
3. *Admitted.* An id without a row asks for one if it has been seen ``admit`` times, its occurrences in this call
   included, and, where admission is by chance, if ``mix64(id ^ mix64(step ^ seed)) < chance``. Otherwise, where
   ``admit > 1``, its occurrences are counted: at its waiting place, which is used thereby, or at a new one that it
   asks for.
4. *Evicted.* A pool that has fewer free places than are asked for frees some: ``max(missing, size / 100 rounded up)``
   of its ids, less where there are not as many. Ids that this step has used stay. With NONE, only expired ones go.
   The order: with LFU by count, with DISTANCE_LFU by ``count / (step - last + 1)`` in float32, where an expired id
   counts as 0; then by ``last``; then by ``mix64(id)``; the lowest first.
5. *Given out.* Asking ids get the free places in the order of their first occurrence. If a segment that evicts has
   too few rows even so, ``short`` has the number that is missing, the rest of the state is as before the call, and
   stays so in all later calls. In a segment with NONE the last ones are refused, and in a pool of waiting places
   forgotten. An admitted id gives its waiting place back at the end of the call.

An id without a row gets the row number ``unknown`` of its segment. An absent entry, with a segment below 0, gets the
number of rows of the stack.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.kernels.ids.words import mix64_of_numpy, part_of, split

NONE, LRU, LFU, DISTANCE_LFU = 0, 1, 2, 3  # those from LFU on count the uses of ids
TOTALS: Final = ("admitted", "evicted", "expired", "refused", "forgotten")
MOST_COUNTED: Final = 2**31 - 1
GROUPS: Final = 8
"""Groups of a table's ids, over all devices: who leaves depends on the group alone, whatever device has it."""
WAYS: Final = 15  # places of a bucket of the index; the 16th holds the number of keys that passed over the bucket
EMPTY: Final = np.uint32(0xFFFFFFFF)  # instead of a place: no id has the pair


class Segment(NamedTuple):
    """A table of the stack, or a part of one.

    Attributes:
      begin: the first row that its ids get.
      end: the row after the last one.
      unknown: the row number of ids without a row.
      admit: the number of occurrences that an id needs for a row.
      chance: an id gets a row in a step where its hash is below; 0: always. 64 bits.
      seed: for the chance; 64 bits.
      policy: NONE, LRU, LFU or DISTANCE_LFU.
      expire: steps without use after which an id loses its row; 0: it never does.
      waiting: the number of places for ids that wait for a row, for ``admit > 1``.
    """

    begin: int
    end: int
    unknown: int
    admit: int = 1
    chance: int = 0
    seed: int = 0
    policy: int = LRU
    expire: int = 0
    waiting: int = 0

    @property
    def rows(self) -> int:
        return self.end - self.begin


class Settings(NamedTuple):
    """The settings of a map; static.

    Attributes:
      segments: in the order of their rows.
      rows: the number of rows of the stack; also the row number of absent entries.
      groups: the number of segments of each table, 1 or a divisor of `GROUPS`; empty: one each.
    """

    segments: tuple[Segment, ...]
    rows: int
    groups: tuple[int, ...] = ()

    @property
    def ends(self) -> npt.NDArray[np.int32]:
        """(tables,) the segment after the last one of each table."""
        return np.cumsum(self.groups or [1] * len(self.segments), dtype=np.int32)

    @property
    def places(self) -> int:
        """The number of rows of the stack and of waiting places."""
        return self.rows + sum(segment.waiting for segment in self.segments)

    @property
    def waiting(self) -> list[tuple[int, int]]:
        """Begin and end of the waiting places of each segment."""
        ends = np.cumsum([self.rows, *(segment.waiting for segment in self.segments)]).tolist()
        return list(itertools.pairwise(ends))

    @property
    def pools(self) -> list[tuple[int, int]]:
        """Begin and end of each pool: the rows of the segments, then their waiting places."""
        return [(segment.begin, segment.end) for segment in self.segments] + self.waiting

    @property
    def buckets(self) -> int:
        """The number of buckets of the index: half full when all places are taken."""
        return max(1, -(-2 * self.places // WAYS))


def settings(segments: Iterable[Segment], rows: int, groups: Iterable[int] = ()) -> Settings:
    """Return checked `Settings`."""
    result = Settings(tuple(segments), rows, tuple(groups))
    end = 0
    for number, one in enumerate(result.segments):
        if not end <= one.begin <= one.end <= rows:
            raise ValueError(f"ids: segment {number} has rows [{one.begin}, {one.end}), after {end} and of {rows} rows")
        if not NONE <= one.policy <= DISTANCE_LFU or one.admit < 1 or one.expire < 0 or one.waiting < 0:
            raise ValueError(f"ids: segment {number} is not valid: {one}")
        end = one.end
    if result.places >= 2**31:
        raise ValueError(f"ids: {result.places} rows and waiting places; a stack takes fewer than 2**31")
    return result


class IdState(NamedTuple):
    """The map; P places, S segments, B buckets.

    Attributes:
      ids: (P, 2) uint32, the id at each place, low and high word; 0 where it is free.
      last: (P,) int32, the step in which it was last used; -1: the place is free.
      counts: (P,) int32, occurrences, of waiting ids and in segments with LFU or DISTANCE_LFU; else 0.
      free: (P,) int32, a stack of free places in the range of each pool.
      pools: (2 * S, 2) int32, by pool the number of free places, and the step before which nothing expires (kept for
        NONE only).
      totals: (S, 5, 2) uint32, 64-bit counts by `TOTALS`.
      short: (S,) int32, the rows that were missing in a step; 0: none.
      buckets: (B, 32) uint32, 15 pairs of place and hash, then the number of keys that passed over the bucket. Derived
        from ``ids`` and ``last``; which pair an id has depends on the backend, and nothing else does.
    """

    ids: jax.Array
    last: jax.Array
    counts: jax.Array
    free: jax.Array
    pools: jax.Array
    totals: jax.Array
    short: jax.Array
    buckets: jax.Array


class Changed(NamedTuple):
    """Rows that got, or lost, an id in a call; by segment.

    Attributes:
      rows: (M,) int32; beyond the number of changes: the number of rows of the stack.
      ids: (M, 2) uint32; 0 beyond.
      ends: (S,) int32, where the rows of each segment end; the last is the number of changes.
    """

    rows: jax.Array
    ids: jax.Array
    ends: jax.Array


class Undo(NamedTuple):
    """The state before a call, as far as the call has changed it; E entries, L places that may lose ids.

    Attributes:
      entries: (5, E) int32 by entry: the place of its id before the call, -1 for none; ``last`` there (-2: unchanged)
        and the count; the free place that its id got, -1 for none, and the position of that in ``free``.
      left: (5, L) int32 by id that was evicted or forgotten: its place, -1 for none; ``last``; the count; both words.
      pools, totals: as in `IdState`.
    """

    entries: jax.Array
    left: jax.Array
    pools: jax.Array
    totals: jax.Array


class Assigned(NamedTuple):
    """The result of `assign`.

    Attributes:
      state: the map after it.
      rows: (N,) int32, the row of each entry.
      fresh: rows that need first values: new ids by first occurrence, then returned ones by first occurrence.
      gone: rows whose ids were evicted, ascending. The k-th new id of a segment has the k-th gone row of the segment,
        as long as there are any.
      undo: the state before, for `undone`.
    """

    state: IdState
    rows: jax.Array
    fresh: Changed
    gone: Changed
    undo: Undo


def assigned(results: Sequence[jax.Array], before: IdState) -> Assigned:
    """Return the results of a compiled `assign`: state, rows, both kinds of changes, arrays of `Undo`."""
    end = len(before)
    fresh, gone = (Changed(*results[at : at + 3]) for at in (end + 1, end + 4))
    undo = Undo(results[end + 7], results[end + 8], before.pools, before.totals)
    return Assigned(IdState(*results[:end]), results[end], fresh, gone, undo)


def group_of(s: Settings, ids: jax.Array, tables: jax.Array) -> jax.Array:
    """(N,) int32: the segment of each id; ``tables``: the number of its table, below 0 where absent."""
    if not s.groups:
        return tables
    groups = np.array(s.groups, np.int32)
    firsts = jnp.asarray(s.ends - groups).at[tables].get(mode="clip")
    within = part_of(ids, GROUPS) % jnp.asarray(groups).at[tables].get(mode="clip")
    return jnp.where(tables < 0, tables, firsts + within)


def most_gone(s: Settings, count: int, *, waiting: bool = False) -> int:
    """Return the most rows (or waiting places) that can lose their ids in a call with ``count`` entries."""
    sizes = [end - begin for begin, end in (s.waiting if waiting else s.pools[: len(s.segments)])]
    return min(sum(sizes), count + sum(-(-size // 100) for size in sizes))


def undo_shapes(s: Settings, count: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the shapes of ``entries`` and ``left`` in the `Undo` of a call with ``count`` entries."""
    return (5, count), (5, most_gone(s, count) + most_gone(s, count, waiting=True))


# The columns of `table`.
BEGIN, END, WAITING_BEGIN, WAITING_END, UNKNOWN, ADMIT, POLICY, EXPIRE, CHANCE, SEED, SALT = (*range(9), 10, 12)
COLUMNS: Final = 16


@functools.lru_cache(maxsize=256)
def table(s: Settings) -> npt.NDArray[np.uint32]:
    """(S, 16) uint32: the settings as kernels read them; chance, seed and salt are low and high words."""
    result = np.zeros((len(s.segments), COLUMNS), np.uint32)
    salts = mix64_of_numpy(np.arange(len(s.segments), dtype=np.uint64)).tolist()
    for number, (one, waiting) in enumerate(zip(s.segments, s.waiting, strict=True)):
        result[number, :CHANCE] = (one.begin, one.end, *waiting, one.unknown, one.admit, one.policy, one.expire)
        for column, value in ((CHANCE, one.chance), (SEED, one.seed), (SALT, salts[number])):
            result[number, column : column + 2] = split(value)
    return result
