"""`Watermark`: how far a stream has come in event time, and `EventTime`: what happens to rows that come too late.

The watermark is the least time over the partitions of a stream, of the newest row of each so far: rows to come are
newer, or late. It depends on the chunks in their order alone, which a resumed run repeats, and never goes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.data import Flight

LatePolicy = Literal["train", "drop", "dead_letter"]
WATERMARK: Final = "watermark"
"""The watermark in `Position.stream`, in the unit of the column."""


class EventTime(NamedTuple):
    """The time of rows.

    Attributes:
      column: the column, integers.
      after: rows that are older than the watermark by more than this, in the unit of the column, are late; None: none.
      policy: what happens to late rows, which are counted: they are trained on, left out, or left out and added to the
        dead letters.
    """

    column: str
    after: int | None = None
    policy: LatePolicy = "train"


class Watermark:
    """The newest time of each partition that is in flight, and the watermark.

    Attributes:
      value: the watermark; None: some partition has not come yet.
      late: the rows that were late so far.

    >>> watermark = Watermark(EventTime("time", after=5))
    >>> clicks = [Flight(name, ("a", "b")) for name in ("a", "b", "a")]
    >>> for flight, times in zip(clicks, ([10, 12], [20], [14, 3]), strict=True):
    ...     print(watermark.passed(flight, np.array(times)), watermark.value)
    None None
    None 12
    [False  True] 14
    """

    def __init__(self, event_time: EventTime, held: Mapping[str, Any] | None = None) -> None:
        """Begin, or go on from `state` of a run before."""
        self.event_time, held = event_time, held or {}
        self.value: int | None = held.get(WATERMARK)
        self.late: int = held.get("late", 0)
        self._newest: dict[str, int] = dict(held.get("newest", {}))

    @property
    def limit(self) -> int | None:
        """Rows that are older are late; None: no row is."""
        after = self.event_time.after
        return None if after is None or self.value is None else self.value - after

    def passed(self, flight: Flight, times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_] | None:
        """Take the times of the next chunk, and return the mask of its late rows; None: there are none.

        Rows are late by the watermark before their chunk.
        """
        limit, late = self.limit, None
        if limit is not None and (times < limit).any():
            late = times < limit
            self.late += int(late.sum())
        wanted = {flight.partition, *flight.others}
        self._newest = {name: own for name, own in self._newest.items() if name in wanted}
        if len(times):
            newest = int(times.max())
            self._newest[flight.partition] = max(newest, self._newest.get(flight.partition, newest))
        if wanted <= self._newest.keys():
            least = min(self._newest.values())
            least = least if flight.least is None else min(least, int(flight.least))
            self.value = least if self.value is None else max(least, self.value)
        return late

    def state(self) -> dict[str, Any]:
        """Return plain values, for a position."""
        return {WATERMARK: self.value, "newest": dict(self._newest), "late": self.late}
