"""`Prepare`: preparation of batches in two halves, and `Turns`: the order of the first."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from sparrow.data.batch import Batch
from sparrow.data.crew import Dropped

T = TypeVar("T")


class Prepare(abc.ABC, Generic[T]):
    """Prepares batches. `measure` sees them one by one and in order; `finish` is called by many threads at a time."""

    @abc.abstractmethod
    def measure(self, batch: Batch) -> Any:
        """Look at the next batch: whatever depends on the batches before it. Short, for all threads wait."""

    @abc.abstractmethod
    def finish(self, measured: Any) -> T:
        """Prepare a batch that was measured."""

    def __call__(self, batch: Batch) -> T:
        """Do both."""
        return self.finish(self.measure(batch))


class Turns:
    """Lets numbered callers in one by one, in the order of their numbers, whenever each of them comes."""

    def __init__(self, first: int, is_over: Callable[[], bool]) -> None:
        """``is_over``: whether nobody waits for them any more."""
        self._next, self._is_over = first, is_over
        self._left: set[int] = set()
        self._changed = threading.Condition()

    def take(self, number: int, run: Callable[[], T]) -> T:
        """Call ``run`` when it is the turn of ``number``. Raise `Dropped` where that never comes."""
        with self._changed:
            while self._next != number:
                if self._is_over():
                    raise Dropped
                self._changed.wait(0.2)
        return run()

    def leave(self, number: int) -> None:
        """Let the next one in, whether or not this one took its turn."""
        with self._changed:
            self._left.add(number)
            while self._next in self._left:
                self._left.remove(self._next)
                self._next += 1
            self._changed.notify_all()
