"""`Clock`: the speed of a run, and where its time goes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Clock:
    """Examples per second: since the last lap, and over the complete run. The start and pauses do not count.

    Attributes:
      spent: the seconds before `restart`, as "start", and the seconds of pauses by name.
    """

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._reset()

    def restart(self) -> None:
        """Start again from zero; the time so far was the start."""
        self.spent["start"] = self.spent.get("start", 0.0) + self._now()
        self._reset()

    def _reset(self) -> None:
        self._seconds, self._examples = 0.0, 0
        self._lap = (0.0, 0)
        self._since: float | None = time.perf_counter()

    def count(self, examples: int) -> None:
        self._examples += examples

    def stop(self) -> None:
        self._seconds, self._since = self._now(), None

    def start(self) -> None:
        self._since = time.perf_counter()

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Stop the clock inside the block, whose time has a ``name``, and restore its state afterwards."""
        ran = self._since is not None
        self.stop()
        began = time.perf_counter()
        try:
            yield
        finally:
            self.spent[name] = self.spent.get(name, 0.0) + time.perf_counter() - began
            if ran:
                self.start()

    def lap(self) -> float:
        """Return the examples per second since the last call."""
        seconds, examples = self._now() - self._lap[0], self._examples - self._lap[1]
        self._lap = (self._now(), self._examples)
        return examples / seconds if examples and seconds > 0 else 0.0

    @property
    def speed(self) -> float:
        """Examples per second over the complete run."""
        return self._examples / self._now() if self._examples else 0.0

    @property
    def times(self) -> dict[str, float]:
        """Seconds by name: of steps, as "training", and of everything in `spent`."""
        return {"training": self._now(), **self.spent}

    def _now(self) -> float:
        return self._seconds + (0.0 if self._since is None else time.perf_counter() - self._since)
