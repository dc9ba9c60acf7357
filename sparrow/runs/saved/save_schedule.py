"""`SaveSchedule`: the times when a run saves its state."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from sparrow.config import Checkpoint

DEFAULT_MINUTES: Final = 10.0


class SaveSchedule:
    """The schedule of checkpoints: by steps or epochs, and by time.

    >>> clock = iter([0.0, 30.0, 61.0])
    >>> schedule = SaveSchedule(Checkpoint(every_steps=5, every_minutes=1), now=lambda: next(clock))
    >>> schedule.is_due(steps=4), schedule.is_due(steps=6), schedule.is_due(steps=10)
    (False, True, True)
    """

    def __init__(self, checkpoint: Checkpoint, now: Callable[[], float] = time.monotonic) -> None:
        self._checkpoint, self._now = checkpoint, now
        counted = checkpoint.every_steps is not None or checkpoint.every_epochs is not None
        minutes = checkpoint.every_minutes or (None if counted else DEFAULT_MINUTES)
        self._seconds = None if minutes is None else 60 * minutes
        self._saved = now()

    def is_due(self, *, steps: int | None = None, epochs: int | None = None) -> bool:
        """Return whether to save after ``steps`` steps, or at the end of ``epochs`` epochs."""
        if steps is not None and is_due(steps, self._checkpoint.every_steps):
            return True
        if epochs is not None and is_due(epochs, self._checkpoint.every_epochs):
            return True
        return self._seconds is not None and self._now() - self._saved >= self._seconds

    def saved(self) -> None:
        """Restart the clock."""
        if self._seconds is not None:
            self._saved = self._now()


def is_due(count: int, every: int | None) -> bool:
    """Return whether ``count`` is a multiple of ``every``.

    >>> is_due(6, 3), is_due(7, 3), is_due(7, None)
    (True, False, False)
    """
    return every is not None and count % every == 0
