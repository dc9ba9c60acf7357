"""`InFlight`: steps that the device was given and that nobody has looked at yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from sparrow.runs.loop.feed import Feed
from sparrow.runs.loop.growing import Overwritten
from sparrow.runs.loop.step import Report

MOST: Final = 4
"""Steps that may be queued on the device: enough that it is never idle, few enough that batches do not pile up."""


class Started(NamedTuple):
    """A step that was started: its number, its batches, where in the data and in which epoch they begin, its report.

    ``overwritten``: rows that started anew before it.
    """

    step: int
    feeds: tuple[Feed, ...]
    position: Mapping[str, Any]
    epoch: int
    report: Report
    overwritten: tuple[Overwritten, ...] = ()


class InFlight:
    """A short queue. A step that was not finite is noticed as it leaves the queue: the device never waits for that."""

    def __init__(self) -> None:
        self._started: deque[Started] = deque()

    def add(self, started: Started) -> Started | None:
        """One more; gives the step that was not finite, if one has just been found."""
        started.report.go.copy_to_host_async()
        self._started.append(started)
        return self.settle(MOST)

    @property
    def is_empty(self) -> bool:
        """Whether the device has nothing left to do."""
        return not self._started or bool(self._started[-1].report.go.is_ready())  # type: ignore[attr-defined]

    def settle(self, left: int = 0) -> Started | None:
        """Waits until at most ``left`` steps are in flight; the first step that was not finite, or None."""
        while len(self._started) > left:
            oldest = self._started.popleft()
            if not np.asarray(oldest.report.go):  # waits for it
                self._started.clear()
                return oldest
        return None


def wait(values: Any) -> None:
    """Until the device has computed them."""
    jax.block_until_ready(values)  # type: ignore[no-untyped-call]
