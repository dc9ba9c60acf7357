"""`Waiting`: the share of the time that the device waited for data."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

EVERY: Final = 60.0
"""Seconds between two lines of the log."""


class Waited(Protocol):
    """A source of batches that notes the time for which they were waited for."""

    @property
    def waited(self) -> float:
        """Seconds."""


class Waiting:
    """The time that a pipeline keeps the device waiting.

    >>> class Slow:
    ...     waited = 0.0
    >>> now = [0.0]
    >>> waiting = Waiting(Slow(), clock=lambda: now[0])
    >>> now[0], Slow.waited = 100.0, 25.0
    >>> waiting.lap(), waiting.line()
    (0.25, 'the device waited for data 25% of the last 100 s; `sparrow feed` shows where the time goes')
    >>> waiting.lap(), waiting.line()
    (0.0, None)
    """

    def __init__(self, pipeline: Waited, clock: Callable[[], float] = time.perf_counter) -> None:
        self._pipeline, self._clock = pipeline, clock
        self.restart()

    def restart(self) -> None:
        """Start again from zero."""
        self._lap = self._line = self._now()

    def lap(self) -> float:
        """Return the share since the last call."""
        before, self._lap = self._lap, self._now()
        return _share(before, self._lap)

    def line(self) -> str | None:
        """Return a line for the log, once a minute."""
        now = self._now()
        seconds = now[0] - self._line[0]
        if seconds < EVERY:
            return None
        share = _share(self._line, now)
        self._line = now
        advice = "; `sparrow feed` shows where the time goes" if share >= 0.1 else ""
        return f"the device waited for data {share:.0%} of the last {seconds:.0f} s{advice}"

    def _now(self) -> tuple[float, float]:
        return self._clock(), self._pipeline.waited


def _share(before: tuple[float, float], now: tuple[float, float]) -> float:
    seconds = now[0] - before[0]
    return min((now[1] - before[1]) / seconds, 1.0) if seconds > 0 else 0.0
