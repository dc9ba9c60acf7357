"""Windows: chunks that are read ahead by several threads, joined until they hold enough rows, and shuffled.

Windows depend on the order of chunks and their numbers of rows alone, never on the order of threads: any number of
threads makes the same windows.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sparrow.data.block import Block, concatenate
from sparrow.data.crew import Crew, Task, do
from sparrow.data.hashing import shuffled
from sparrow.data.memory import Memory
from sparrow.data.position import Position
from sparrow.data.rooms import Part
from sparrow.data.shares import Portion

COPIES: Final = 3
"""Copies of the rows that are made ahead: as read, shuffled, and packed."""

AHEAD: Final = 4
"""Small chunks that are begun early by few threads, which then seldom wait for the next one."""
SMALL: Final = 2**25
"""Bytes that are reserved for a small chunk, at most."""

Convert = Callable[[Portion, Part | None], tuple[Block, int]]
"""From a chunk, or a portion of one, and memory for its rows, to the rows, and the number of malformed ones."""


@dataclasses.dataclass(frozen=True)
class Window:
    """Converted rows in their final order.

    Attributes:
      rows: the rows, once they are made.
      count: the number of rows.
      start: the position of the first of them.
      skipped: malformed rows among the rows read for it.
      nbytes: memory that is reserved for it.
    """

    rows: Task[Block]
    count: int
    start: Position
    skipped: int
    nbytes: int


class Chunks:
    """The converted chunks of a run of epochs, in order, made ahead as far as the memory allows."""

    def __init__(
        self, convert: Convert, order: Iterator[tuple[Portion, Part | None]], crew: Crew | None, memory: Memory
    ) -> None:
        """Take the chunks of all remaining epochs. Without a ``crew``, each is read when it is requested."""
        self._convert, self._order, self._crew, self._memory = convert, order, crew, memory
        self._begun: deque[tuple[Task[tuple[Block, int]], int]] = deque()  # and the memory reserved for each
        self._largest = 0

    def next(self) -> tuple[Block, int, int]:
        """Return the rows of the next chunk, the number of malformed ones, and the memory reserved for them."""
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
        """Begin one more, if there is room for it, or in any case where it ``must`` be."""
        if not must and not self._may_begin():
            return False
        chunk = next(self._order, None)
        if chunk is None:
            return False
        convert = functools.partial(self._convert, *chunk)
        self._memory.add(self._largest)
        self._begun.append((do(self._crew, convert, urgent=False), self._largest))
        return True

    def _may_begin(self) -> bool:
        """Return whether a thread is free, and there is room. The first chunk's size is the estimate for others."""
        if self._crew is None or not self._largest:
            return False
        least = AHEAD if self._largest <= SMALL else 1
        if len(self._begun) >= max(2 * self._crew.size, least):
            return False
        return self._memory.has_room(self._largest)


def joined(parts: Sequence[Block], seeds: tuple[int, ...] | None) -> Block:
    """Return one block of all parts, shuffled by the seeds, if any."""
    whole = concatenate(parts)
    return whole if seeds is None else whole.take(shuffled(len(whole), *seeds))
