"""`PlainIdMap`: the id map in Python, for machines without a compiler, and the reference of the C++."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.embedding.dynamic.id_map import (
    ARRAYS,
    NUMBERS,
    POLICIES,
    Arrays,
    Assigned,
    IdMap,
    Ids,
    Rows,
    Settings,
    too_few,
)
from sparrow.embedding.hashing import mix64

MOST_COUNTED: Final = 255
_NONE, _LRU, _LFU = POLICIES.values()
_FULL: Final = -2
_ABSENT: Final = object()


class _Journal(NamedTuple):
    """The values that one batch overwrote, in order: mapping, key, value."""

    step: int
    changes: list[list[Any]]


class PlainIdMap(IdMap):
    """Dicts, and a journal of every change to them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._rows: dict[int, int] = {}  # by id
        self._last: dict[int, int] = {}  # the step in which it was last seen, by id
        self._ids: dict[int, int] = {}  # by row
        self._counts: dict[int, int] = {}  # by row, for LFU
        self._seen: dict[int, tuple[int, int]] = {}  # by waiting id: times, and its place in the queue
        self._queue: dict[int, int] = {}  # by place
        self._numbers = dict.fromkeys(NUMBERS, 0) | {"step": -1}
        self._past: list[_Journal] = []
        self._undone = 0

    def find(self, ids: Ids, step: int) -> Rows:
        """Look each of them up."""
        rows = [-1 if self._is_expired(key, step) else self._rows.get(key, -1) for key in ids.tolist()]
        return np.array(rows, np.int32)

    def train(self, ids: Ids, step: int) -> Assigned:
        """Mark the known ids, count the others, then give rows out."""
        self._past.append(_Journal(step, []))
        self._set(self._numbers, "step", step)
        rows: dict[int, int] = {}
        made: list[tuple[int, int]] = []
        keys: list[int] = ids.tolist()
        unknown = []
        for key in keys:
            if key not in self._rows:
                unknown.append(key)
                continue
            row = self._rows[key]
            if self._is_expired(key, step):
                self._add("expired", 1)
                self._count(row, 0)
                made.append((row, key))
            if self._last[key] != step:
                self._set(self._last, key, step)
            self._count(row, self._counts.get(row, 0) + 1)
            rows[key] = row
        if self.settings.admit > 1:
            for key in unknown:
                self._wait(key)
        lucky = self._lucky(unknown, step)
        for key in unknown:
            if key in self._rows:  # given out a moment ago
                self._count(self._rows[key], self._counts.get(self._rows[key], 0) + 1)
                continue
            rows[key] = -1
            times = self._seen.get(key, (0, 0))[0]  # 0 where it was forgotten within the batch
            if (self.settings.admit > 1 and times < self.settings.admit) or not lucky.get(key, True):
                continue
            row = self._take_row(step)
            if row == _FULL:
                self._swap(self._past.pop())
                raise too_few(self.settings.capacity)
            if row < 0:
                self._add("refused", 1)
                continue
            if key in self._seen:
                self._set(self._seen, key, _ABSENT)
                self._add("waiting", -1)
            self._set(self._rows, key, row)
            self._set(self._last, key, step)
            self._set(self._ids, row, key)
            self._count(row, 1)
            self._add("admitted", 1)
            rows[key] = row
            made.append((row, key))
        return Assigned(
            np.array([rows[key] for key in keys], np.int32),
            np.array([row for row, _ in made], np.int32),
            np.array([key for _, key in made], np.uint64),
        )

    def back(self, step: int) -> None:
        """Undo the journals, the newest first."""
        while self._undone < len(self._past) and self._past[-1 - self._undone].step >= step:
            self._swap(self._past[-1 - self._undone])
            self._undone += 1

    def forward(self) -> None:
        """Make the changes again."""
        for journal in self._past[len(self._past) - self._undone :]:
            for change in journal.changes:
                _swap(change)
        self._undone = 0

    def drop(self) -> None:
        """Drop the journals that `back` went through."""
        del self._past[len(self._past) - self._undone :]
        self._undone = 0

    def undo_last(self) -> None:
        """Undo its journal, and drop it."""
        self._swap(self._past.pop())

    def forget(self, step: int) -> None:
        """Drop the oldest journals."""
        while len(self._past) > self._undone and self._past[0].step < step:
            del self._past[0]

    @property
    def numbers(self) -> dict[str, int]:
        """Counts and positions."""
        return dict(self._numbers)

    def state(self) -> Arrays:
        """Rows in their order, waiting ids in theirs."""
        ids = [self._ids[row] for row in range(self._numbers["next"])]
        waiting = sorted((place, key, times) for key, (times, place) in self._seen.items())
        values: dict[str, list[int]] = {
            "ids": ids,
            "last": [self._last[key] for key in ids],
            "counts": [self._counts.get(row, 0) for row in range(len(ids))],
            "waiting": [key for _, key, _ in waiting],
            "seen": [times for _, _, times in waiting],
            "places": [place for place, _, _ in waiting],
        }
        arrays = {name: np.array(values[name], kind) for name, kind in ARRAYS.items()}
        return {**arrays, "numbers": np.array(list(self._numbers.values()), np.int64)}

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Enter them into the dicts."""
        held = {name: state[name].tolist() for name in ARRAYS}
        self._numbers = dict(zip(NUMBERS, map(int, state["numbers"]), strict=True))
        self._ids = dict(enumerate(held["ids"]))
        self._rows = {key: row for row, key in self._ids.items()}
        self._last = dict(zip(held["ids"], held["last"], strict=True))
        self._counts = dict(enumerate(held["counts"])) if self.settings.policy == _LFU else {}
        self._seen = dict(zip(held["waiting"], zip(held["seen"], held["places"], strict=True), strict=True))
        self._queue = dict(zip(held["places"], held["waiting"], strict=True))

    def _is_expired(self, key: int, step: int) -> bool:
        return bool(self.settings.expire) and key in self._last and step - self._last[key] > self.settings.expire

    def _lucky(self, keys: list[int], step: int) -> dict[int, bool]:
        """Whether each id is admitted, where that is by chance."""
        if not self.settings.chance or not keys:
            return {}
        salt = mix64(np.array([step], np.uint64) ^ np.uint64(self.settings.seed))
        drawn = mix64(np.array(keys, np.uint64) ^ salt) < np.uint64(self.settings.chance)
        return dict(zip(keys, drawn.tolist(), strict=True))

    def _wait(self, key: int) -> None:
        if key in self._seen:
            times, place = self._seen[key]
            self._set(self._seen, key, (min(times + 1, 1 << 30), place))
            return
        head, tail = self._numbers["head"], self._numbers["tail"]
        if tail - head == self.settings.room:
            first = self._queue.get(head)
            if first is not None and self._seen.get(first, (0, -1))[1] == head:
                self._set(self._seen, first, _ABSENT)
                self._add("waiting", -1)
                self._add("forgotten", 1)
            if first is not None:
                self._set(self._queue, head, _ABSENT)
            self._add("head", 1)
        self._set(self._queue, tail, key)
        self._set(self._seen, key, (1, tail))
        self._add("tail", 1)
        self._add("waiting", 1)

    def _take_row(self, step: int) -> int:
        numbers, (capacity, _, _, _, policy, expire, _) = self._numbers, self.settings
        if numbers["next"] < capacity:
            self._add("next", 1)
            return numbers["next"] - 1
        if policy == _NONE and (not expire or step < numbers["quiet"]):
            return -1
        oldest = step
        for looked in range({_NONE: 1, _LRU: 34, _LFU: 10}[policy] * capacity):
            if looked and looked % capacity == 0:  # a round in vain: fewer steps count as recent
                self._set(numbers, "since", (numbers["since"] + step + 1) // 2)
            row = numbers["hand"]
            self._set(numbers, "hand", (row + 1) % capacity)
            if row + 1 == capacity:
                self._set(numbers, "since", max(numbers["since"], numbers["began"]))
                self._set(numbers, "began", step)
            key = self._ids[row]
            if self._last[key] == step:
                continue
            oldest = min(oldest, self._last[key])
            if not self._is_expired(key, step):
                if policy == _NONE or (policy == _LRU and self._last[key] >= numbers["since"]):
                    continue
                if policy == _LFU and self._counts[row]:
                    self._count(row, self._counts[row] >> 1)
                    continue
            self._set(self._rows, key, _ABSENT)
            self._set(self._last, key, _ABSENT)
            self._add("evicted", 1)
            return row
        if policy != _NONE:
            return _FULL
        self._set(numbers, "quiet", oldest + expire + 1)
        return -1

    def _count(self, row: int, count: int) -> None:
        if self.settings.policy == _LFU:
            self._set(self._counts, row, min(count, MOST_COUNTED))

    def _add(self, name: str, amount: int) -> None:
        self._set(self._numbers, name, self._numbers[name] + amount)

    def _set(self, held: dict[Any, Any], key: Any, value: Any) -> None:
        change = [held, key, value]
        _swap(change)
        self._past[-1].changes.append(change)

    def _swap(self, journal: _Journal) -> None:
        for change in reversed(journal.changes):
            _swap(change)


def _swap(change: list[Any]) -> None:
    """Exchange a value of a dict with the one in the journal."""
    held, key, value = change
    change[2] = held.get(key, _ABSENT)
    if value is _ABSENT:
        del held[key]
    else:
        held[key] = value
