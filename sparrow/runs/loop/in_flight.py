"""`InFlight`: steps that the device was given and whose results were not checked yet."""

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
    """A step that was started: its number, its batches, their first position and epoch in the data, its report.

    ``overwritten``: rows that started fresh before it.
    """

    step: int
    feeds: tuple[Feed, ...]
    position: Mapping[str, Any]
    epoch: int
    report: Report
    overwritten: tuple[Overwritten, ...] = ()


class InFlight:
    """A short queue. Each step is checked for finite values as it leaves the queue, so that the device never waits."""

    def __init__(self) -> None:
        self._started: deque[Started] = deque()

    def add(self, started: Started) -> Started | None:
        """Add a step; return the step that was not finite, if one has just been found."""
        started.report.go.copy_to_host_async()
        self._started.append(started)
        return self.settle(MOST)

    @property
    def is_empty(self) -> bool:
        """Return whether the device has nothing left to do."""
        return not self._started or bool(self._started[-1].report.go.is_ready())  # type: ignore[attr-defined]

    def settle(self, left: int = 0) -> Started | None:
        """Wait until at most ``left`` steps are in flight; return the first step that was not finite, or None."""
        while len(self._started) > left:
            oldest = self._started.popleft()
            if not np.asarray(oldest.report.go):  # waits for it
                self._started.clear()
                return oldest
        return None


def wait(values: Any) -> None:
    """Wait until the device has computed them."""
    jax.block_until_ready(values)  # type: ignore[no-untyped-call]
