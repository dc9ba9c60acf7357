"""`InFlight`: steps that the device was given and whose results were not checked yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from sparrow.feed import Feed
from sparrow.runs.step.step import History, Report

MOST: Final = 4
"""Steps that may be queued on the device: enough that it is never idle, few enough that batches do not pile up."""

MOST_CALLS: Final = 2
"""Calls of several steps that may be queued."""


class Started(NamedTuple):
    """A step that was started: its number, its batches, their first position and epoch in the data, its report."""

    step: int
    feeds: tuple[Feed, ...]
    position: Mapping[str, Any]
    epoch: int
    report: Report


class Call(NamedTuple):
    """The steps that the device was given at once; ``history``: their losses, of several of them."""

    steps: tuple[Started, ...]
    history: History | None = None

    @property
    def go(self) -> jax.Array:
        """Whether the run may continue after each of them."""
        return self.steps[-1].report.go if self.history is None else self.history.go


class InFlight:
    """A short queue. Each step is checked for finite values as it leaves the queue, so that the device never waits."""

    def __init__(self) -> None:
        self._calls: deque[Call] = deque()

    def add(self, call: Call) -> Started | None:
        """Add the steps of a call; return the step that was not finite, if one has just been found."""
        call.go.copy_to_host_async()
        self._calls.append(call)
        return self.settle(MOST if call.history is None else MOST_CALLS)

    @property
    def is_empty(self) -> bool:
        """Return whether the device has nothing left to do."""
        return not self._calls or bool(self._calls[-1].go.is_ready())  # type: ignore[attr-defined]

    def settle(self, left: int = 0) -> Started | None:
        """Wait until at most ``left`` calls are in flight; return the first step that was not finite, or None."""
        while len(self._calls) > left:
            oldest = self._calls.popleft()
            go = np.atleast_1d(np.asarray(oldest.go))  # waits for it
            if not go.all():
                self._calls.clear()
                number = int(go.argmin())
                started, history = oldest.steps[number], oldest.history
                if history is None:
                    return started
                own = started.report._replace(loss=history.loss[number], go=history.go[number])
                return started._replace(report=own)
        return None
