"""Windows: chunks that are read ahead by several threads, joined until they hold enough rows, and shuffled.

All that is decided here depends on the order of chunks and their numbers of rows alone, never on which thread was
first: any number of threads gives the same windows.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sparrow.data.block import Block, concatenate
from sparrow.data.crew import Crew, Task, do
from sparrow.data.hashing import shuffled
from sparrow.data.memory import Memory
from sparrow.data.position import Position

COPIES: Final = 3
"""How often rows that are made ahead are held: as they were read, shuffled, and packed."""

Convert = Callable[[int], tuple[Block, int]]
"""From the number of a chunk to its rows, and how many of them were malformed."""


@dataclasses.dataclass(frozen=True)
class Window:
    """Converted rows in their final order.

    Attributes:
      rows: the rows, once they are made.
      count: how many there are.
      start: the position of the first of them.
      skipped: malformed rows among those read for it.
      nbytes: memory that is reserved for it.
    """

    rows: Task[Block]
    count: int
    start: Position
    skipped: int
    nbytes: int


class Chunks:
    """The converted chunks of a run of epochs, in order, made ahead as far as the memory allows."""

    def __init__(self, convert: Convert, order: Iterator[int], crew: Crew | None, memory: Memory) -> None:
        """``order``: the chunks of all epochs that are left. Without a ``crew``, each is read when it is asked for."""
        self._convert, self._order, self._crew, self._memory = convert, order, crew, memory
        self._begun: deque[tuple[Task[tuple[Block, int]], int]] = deque()  # and the memory reserved for each
        self._largest = 0

    def next(self) -> tuple[Block, int, int]:
        """The rows of the next chunk, how many were malformed, and the memory reserved for them."""
        if not self._begun:
            self._begin(must=True)
        while self._begin():
            pass
        task, reserved = self._begun.popleft()
        rows, bad = task.result()
        nbytes = COPIES * rows.nbytes
        self._memory.add(nbytes - reserved)
        self._largest = max(self._largest, nbytes)
        return rows, bad, nbytes

    def _begin(self, must: bool = False) -> bool:
        """Begin one more, if there is room for it; it must be begun where somebody waits for it."""
        if not must and not self._may_begin():
            return False
        chunk = next(self._order, None)
        if chunk is None:
            return False
        self._memory.add(self._largest)
        self._begun.append((do(self._crew, lambda: self._convert(chunk), urgent=False), self._largest))
        return True

    def _may_begin(self) -> bool:
        """Whether another thread could use it, and there is room. The first chunk tells how much room one needs."""
        if self._crew is None or not self._largest or len(self._begun) >= 2 * self._crew.size:
            return False
        return self._memory.has_room(self._largest)


def joined(parts: Sequence[Block], seeds: tuple[int, ...] | None) -> Block:
    """One block of all parts, shuffled by the seeds, if there are any."""
    whole = concatenate(parts)
    return whole if seeds is None else whole.take(shuffled(len(whole), *seeds))
