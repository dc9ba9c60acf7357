"""`Prepare`: preparation of batches in halves, and `Turns`: the order of one of them."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from sparrow.data.batch import Batch
from sparrow.data.block import Block, concatenate
from sparrow.data.crew import Dropped
from sparrow.data.layout import Layout

T = TypeVar("T")


class Made(NamedTuple, Generic[T]):
    """Batches that were made in one task, and the error that came after them, if any."""

    batches: list[T]
    error: BaseException | None = None


class Prepare(abc.ABC, Generic[T]):
    """Preparation of batches. `measure` gets them one by one and in order; many threads call the rest at a time.

    Attributes:
      pads: whether the short last batch of an epoch comes with padding, so that it has the size of the others. The
        only batch of an epoch stays as it is.
      loop_only_waits: whether the loop that waits for a batch makes none itself. A device of its own would have nothing
        to do while the loop makes one, though others become ready.
    """

    pads: bool = False
    loop_only_waits: bool = False

    def together(self, batch_size: int, layout: Layout) -> int:
        """Return the number of batches, of rows of that layout, that are made in one task."""
        return 1

    def at_once(self, batches: Sequence[Sequence[Block]]) -> list[T] | None:
        """Prepare batches that do not depend on others, each straight from the blocks of its rows.

        None: they must be measured.
        """
        return None

    def look(self, blocks: Sequence[Block]) -> Any:
        """Do the work on a batch that comes before `measure`, from the blocks of its rows."""
        return concatenate(blocks).to_batch()

    @abc.abstractmethod
    def measure(self, looked: Any) -> Any:
        """Do the work on the next batch that depends on earlier ones. It must be short: all threads wait for it.

        ``looked``: the result of `look`; a `Batch` where negatives were drawn for it.
        """

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
