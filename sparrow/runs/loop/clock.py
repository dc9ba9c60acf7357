"""`Clock`: how fast a run is."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Clock:
    """Examples a second: since the last lap, and over the whole run. Pauses do not count."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forgets everything before now."""
        self._seconds, self._examples = 0.0, 0
        self._lap = (0.0, 0)
        self._since: float | None = time.perf_counter()

    def count(self, examples: int) -> None:
        """So many more."""
        self._examples += examples

    def stop(self) -> None:
        """Stands still until `start`."""
        self._seconds, self._since = self._now(), None

    def start(self) -> None:
        """Runs on."""
        self._since = time.perf_counter()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stands still inside the block, and after it where it stood before."""
        ran = self._since is not None
        self.stop()
        yield
        if ran:
            self.start()

    def lap(self) -> float:
        """Examples a second since the last call."""
        seconds, examples = self._now() - self._lap[0], self._examples - self._lap[1]
        self._lap = (self._now(), self._examples)
        return examples / seconds if examples and seconds > 0 else 0.0

    @property
    def speed(self) -> float:
        """Examples a second."""
        return self._examples / self._now() if self._examples else 0.0

    def _now(self) -> float:
        return self._seconds + (0.0 if self._since is None else time.perf_counter() - self._since)
