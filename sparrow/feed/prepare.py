"""`Prepare`: the preparation of batches, and `Turns`: the order of the work that depends on earlier ones."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from sparrow.data import Batch, Block, BlockLayout, concatenate
from sparrow.feed.crew import Dropped

T = TypeVar("T")


class Made(NamedTuple, Generic[T]):
    """Batches that were made in one job, and the error that came after them, if any."""

    batches: list[T]
    error: BaseException | None = None


class Prepare(abc.ABC, Generic[T]):
    """Preparation of batches, by many threads at a time.

    Attributes:
      pads: whether the short last batch of an epoch comes with padding, so that it has the size of the others. The
        only batch of an epoch stays as it is.
      loop_only_waits: whether the loop that waits for a batch makes none itself. A device of its own would have nothing
        to do while the loop makes one, though others become ready.
    """

    pads: bool = False
    loop_only_waits: bool = False

    def together(self, batch_size: int, layout: BlockLayout) -> int:
        """Return the number of batches, of rows of that layout, that are made in one job."""
        return 1

    @abc.abstractmethod
    def make(self, batches: Sequence[Sequence[Block] | Batch], in_turn: Callable[[Callable[[], Any]], Any]) -> Made[T]:
        """Prepare batches, each from the blocks of its rows, or from its columns where negatives were drawn for it.

        ``in_turn`` calls a function once all batches before have called theirs, and returns its result: for work that
        depends on earlier batches. It must be short: all threads wait for it.
        """


class OneByOne(Prepare[T]):
    """The preparation of batches one by one, by a function of their columns."""

    def __init__(self, function: Callable[[Batch], T]) -> None:
        self._function = function

    def make(self, batches: Sequence[Sequence[Block] | Batch], in_turn: Callable[[Callable[[], Any]], Any]) -> Made[T]:
        made: list[T] = []
        try:
            for rows in batches:
                made.append(self._function(rows if isinstance(rows, Batch) else concatenate(rows).to_batch()))
        except Exception as error:
            return Made(made, error)
        return Made(made)


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
