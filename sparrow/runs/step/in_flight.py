"""`InFlight`: steps that the device was given and whose results were not checked yet."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from sparrow.feed import Feed
from sparrow.runs.step.step import History

TOGETHER: Final = 4
"""Steps that are checked together: a flag that is false stays false, so that the last one tells of all of them."""
MOST: Final = 3 * TOGETHER - 1
"""Steps that may be queued on the device: enough that it is never idle, few enough that batches do not pile up."""


class Started(NamedTuple):
    """A step that was started: its number, its batches, their first position and epoch in the data; and its loss."""

    step: int
    feeds: tuple[Feed, ...]
    position: Mapping[str, Any]
    epoch: int
    loss: float = math.nan


class Call(NamedTuple):
    """The steps that the device was given at once, and their losses."""

    steps: tuple[Started, ...]
    history: History


class InFlight:
    """A short queue. Steps are checked for finite values as they leave the queue, so that the device never waits."""

    def __init__(self) -> None:
        self._groups: deque[list[Call]] = deque([[]])  # the last one is not complete

    def add(self, call: Call) -> Started | None:
        """Add the steps of a call; return the step that was not finite, if one has just been found."""
        group = self._groups[-1]
        group.append(call)
        if sum(len(one.steps) for one in group) < TOGETHER:
            return None
        call.history.go.copy_to_host_async()
        self._groups.append([])
        return self.settle(MOST // TOGETHER)

    @property
    def is_empty(self) -> bool:
        """Return whether the device has nothing left to do."""
        calls = [group[-1] for group in self._groups if group]
        return not calls or bool(calls[-1].history.go.is_ready())  # type: ignore[attr-defined]

    def settle(self, left: int = 0) -> Started | None:
        """Wait until at most ``left`` complete groups are in flight; return the first step that was not finite."""
        if not left:
            self._groups.append([])
        while len(self._groups) > left + 1:
            group = self._groups.popleft()
            if not group or np.asarray(group[-1].history.go).all():  # waits for it
                continue
            self._groups = deque([[]])
            go, losses = ([np.atleast_1d(call.history[part]) for call in group] for part in (1, 0))
            number = int(np.concatenate(go).argmin())
            steps = [started for call in group for started in call.steps]
            return steps[number]._replace(loss=float(np.concatenate(losses)[number]))
        return None
