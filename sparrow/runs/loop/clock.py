"""`Clock`: the speed of a run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Clock:
    """Examples a second: since the last lap, and over the complete run. Pauses do not count."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start again from zero."""
        self._seconds, self._examples = 0.0, 0
        self._lap = (0.0, 0)
        self._since: float | None = time.perf_counter()

    def count(self, examples: int) -> None:
        """Add ``examples`` to the count."""
        self._examples += examples

    def stop(self) -> None:
        """Stop the clock until `start`."""
        self._seconds, self._since = self._now(), None

    def start(self) -> None:
        """Start the clock."""
        self._since = time.perf_counter()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock inside the block, and restore its state afterwards."""
        ran = self._since is not None
        self.stop()
        yield
        if ran:
            self.start()

    def lap(self) -> float:
        """Return the examples a second since the last call."""
        seconds, examples = self._now() - self._lap[0], self._examples - self._lap[1]
        self._lap = (self._now(), self._examples)
        return examples / seconds if examples and seconds > 0 else 0.0

    @property
    def speed(self) -> float:
        """Examples a second."""
        return self._examples / self._now() if self._examples else 0.0

    def _now(self) -> float:
        return self._seconds + (0.0 if self._since is None else time.perf_counter() - self._since)
