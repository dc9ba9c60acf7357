"""`Prepare`: preparation of batches in two halves, and `Turns`: the order of the first."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from sparrow.data.batch import Batch
from sparrow.data.block import Block
from sparrow.data.crew import Dropped

T = TypeVar("T")


class Prepare(abc.ABC, Generic[T]):
    """Preparation of batches. `measure` gets them one by one and in order; many threads call `finish` at a time."""

    def at_once(self, rows: Block) -> T | None:
        """Prepare a batch that does not depend on others, straight from its rows; None: it must be measured."""
        return None

    @abc.abstractmethod
    def measure(self, batch: Batch) -> Any:
        """Do the work on the next batch that depends on earlier ones. It must be short: all threads wait for it."""

    @abc.abstractmethod
    def finish(self, measured: Any) -> T:
        """Prepare a batch that was measured."""

    def __call__(self, batch: Batch) -> T:
        """Do both."""
        return self.finish(self.measure(batch))


class Turns:
    """A gate that lets numbered callers in one by one, in the order of their numbers.

    A caller waits for the previous one alone, which wakes it and no other.
    """

    def __init__(self, first: int, is_over: Callable[[], bool]) -> None:
        """Begin at ``first``. ``is_over`` returns whether the callers are no longer needed."""
        self._next, self._is_over = first, is_over
        self._lock = threading.Lock()
        self._left: set[int] = set()
        self._waiting: dict[int, threading.Lock] = {}

    def take(self, number: int, run: Callable[[], T]) -> T:
        """Call ``run`` when it is the turn of ``number``. Raise `Dropped` where it never comes."""
        gate = threading.Lock()
        with self._lock:
            if self._next != number:
                gate.acquire()
                self._waiting[number] = gate
        while not gate.acquire(timeout=0.2):
            if self._is_over():
                raise Dropped
        return run()

    def leave(self, number: int) -> None:
        """Let the next one in, whether or not this one took its turn."""
        with self._lock:
            self._left.add(number)
            while self._next in self._left:
                self._left.remove(self._next)
                self._next += 1
            gate = self._waiting.pop(self._next, None)
        if gate is not None:
            gate.release()
