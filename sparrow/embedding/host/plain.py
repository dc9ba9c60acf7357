"""`PlainPlanner`: the plan in NumPy, for machines without a compiler, and the reference of the C++."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import numpy as np

from sparrow.embedding.host.planner import Ids, Moves, Planner, too_small
from sparrow.embedding.stacking import Stack

MOST_COUNTED: Final = 7
ROUNDS: Final = 5
"""Rounds of the hand: after four of them all counts are 0."""


class PlainPlanner(Planner):
    """Arrays by row and by slot, as in ``cache_plan.cc``."""

    def __init__(self, logical: Stack, cached: Stack) -> None:
        super().__init__(logical, cached)
        # By row. Above 0: the slot + 1; 0: never on the device; below 0: left before step -place - 1.
        self._place = np.zeros(logical.num_rows, np.int32)
        self._last = np.zeros(logical.num_rows, np.int32)  # 1 + the last step seen so far that needs it
        self._row_of = np.zeros(cached.num_rows, np.int32)
        self._count = np.zeros(cached.num_rows, np.uint8)
        self._next = self.first_slots[:-1].copy()
        self._hand = self.first_slots[:-1].copy()
        self._window: deque[tuple[int, list[list[Ids]]]] = deque()

    def begin(self, step: int) -> None:
        """Open lists for its rows."""
        self._window.append((step, [[] for _ in self._next]))

    def see(self, ids: Ids, tables: range) -> None:
        """Sort the rows of each table."""
        step, lists = self._window[-1]
        for table in tables:
            own = ids[(ids >= self.first_rows[table]) & (ids < self.first_rows[table + 1])]
            rows, first = np.unique(own, return_index=True)
            rows = rows[np.argsort(first)]  # in the order met
            rows = rows[self._last[rows] != step + 1]
            self._last[rows] = step + 1
            lists[table].append(rows)

    def needed(self, table: int) -> int:
        """Return the length of its lists."""
        return sum(map(len, self._window[-1][1][table]))

    def admit(self, table: int) -> Moves:
        """Go through slots in chunks: from the hand to the slot that frees the last row wanted, or to the end."""
        step, lists = self._window[0]
        rows = np.concatenate([*lists[table], np.zeros(0, np.int32)])
        begin, end = self.first_slots[table : table + 2]
        if len(rows) > end - begin:
            raise too_small(table)
        place = self._place[rows]
        present = place[place > 0] - 1
        self._count[present] += self._count[present] < MOST_COUNTED
        coming = rows[place <= 0]
        left = place[place < 0]
        after = -int(left.min()) - 1 if len(left) else -1
        fresh = np.arange(self._next[table], min(self._next[table] + len(coming), end), dtype=np.int32)
        self._next[table] += len(fresh)
        self._give(coming[: len(fresh)], fresh)
        freed = [fresh]
        out: list[Any] = []
        wanted, looked = len(coming) - len(fresh), 0
        while wanted and looked < ROUNDS * (end - begin):
            hand = int(self._hand[table])
            chunk = np.arange(hand, end)
            idle = self._count[chunk] == 0
            good = np.flatnonzero(idle & (self._last[self._row_of[chunk]] <= step))[:wanted]
            visited = int(good[-1]) + 1 if len(good) == wanted else len(chunk)
            visited = min(visited, int(ROUNDS * (end - begin)) - looked)
            good = good[good < visited]
            self._count[chunk[:visited]] >>= 1
            looked += visited
            self._hand[table] = begin if hand + visited == end else hand + visited
            slots = chunk[good].astype(np.int32)
            out.append(self._free(slots, step))
            done = len(coming) - wanted
            self._give(coming[done : done + len(slots)], slots)
            freed.append(slots)
            wanted -= len(slots)
        early = wanted
        if wanted:
            needed = np.full(end - begin, np.iinfo(np.int32).max)  # by slot: the next step that needs its row
            for other, seen in reversed(self._window):
                held = self._place[np.concatenate([*seen[table], np.zeros(0, np.int32)])]
                needed[held[held > 0] - 1 - begin] = other
            others = np.flatnonzero(needed != step) + begin
            order = np.argsort(-needed[others - begin], kind="stable")
            slots = others[order][:wanted].astype(np.int32)
            out.append(self._free(slots, step))
            self._give(coming[len(coming) - wanted :], slots)
            freed.append(slots)
        in_slots = np.concatenate(freed)
        out_rows = np.concatenate([*out, np.zeros(0, np.int32)])
        return Moves(coming, in_slots, out_rows, in_slots[len(fresh) :], early, after)

    def slots(self, ids: Ids) -> None:
        """Look them up."""
        valid = (ids >= 0) & (ids < self.first_rows[-1])
        ids[...] = np.where(valid, self._place[np.where(valid, ids, 0)] - 1, self.first_slots[-1])

    def end(self) -> None:
        """Drop its lists."""
        self._window.popleft()

    def _free(self, slots: Ids, step: int) -> Ids:
        rows = self._row_of[slots]
        self._place[rows] = -1 - step
        return rows

    def _give(self, rows: Ids, slots: Ids) -> None:
        self._place[rows] = slots + 1
        self._row_of[slots] = rows
        self._count[slots] = 0
