"""`Room`: memory for the rows of a window. Its chunks are converted side by side, and joined without a copy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from sparrow.data.errors import DataError
from sparrow.kernels import feed

C = TypeVar("C")


class Room:
    """Memory for some rows, which is taken when the first of them come."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._words: npt.NDArray[np.int32] | None = None
        self._lock = threading.Lock()

    def words(self, width: int) -> npt.NDArray[np.int32]:
        """Return the memory, (rows, width)."""
        with self._lock:
            if self._words is None:
                try:
                    self._words = feed.pool.empty((self._rows, width), np.int32)
                except MemoryError:
                    why = "there is no memory for the rows that are shuffled together, {:,} of {:,} bytes"
                    raise DataError(f"{why.format(self._rows, 4 * width)}; lower shuffle_rows") from None
            return self._words


class Part(NamedTuple):
    """The rows ``begin`` to ``end`` of a room."""

    room: Room
    begin: int
    end: int

    def words(self, width: int) -> npt.NDArray[np.int32]:
        """Return their memory."""
        return self.room.words(width)[self.begin : self.end]


def with_parts(chunks: Iterable[C], rows_of: Callable[[C], int | None], least: int) -> Iterator[tuple[C, Part | None]]:
    """Yield the chunks, each with its part of the room of its window: the chunks that have ``least`` rows together.

    ``rows_of`` returns the rows of a chunk; a chunk whose rows are not known, or that is a window, has no part.

    >>> [(chunk, part and part[1:]) for chunk, part in with_parts(range(4), lambda chunk: 10, 15)]
    [(0, (0, 10)), (1, (10, 20)), (2, (0, 10)), (3, (10, 20))]
    """
    window: list[tuple[C, int]] = []
    for chunk in chunks:
        rows = rows_of(chunk)
        if rows is None:
            yield from _placed(window)
            window = []
            yield chunk, None
            continue
        window.append((chunk, rows))
        if sum(own for _, own in window) >= least:
            yield from _placed(window)
            window = []
    yield from _placed(window)


def _placed(window: list[tuple[C, int]]) -> Iterator[tuple[C, Part | None]]:
    room, begin = Room(sum(rows for _, rows in window)), 0
    for chunk, rows in window:
        yield chunk, Part(room, begin, begin + rows) if len(window) > 1 else None
        begin += rows


def side_by_side(parts: list[npt.NDArray[np.int32]]) -> npt.NDArray[np.int32] | None:
    """Return rows that follow each other in one piece of memory as one array, without a copy; None: they do not."""
    parts = [part for part in parts if len(part)]
    memory: Any = parts[0].base if parts else None
    if not isinstance(memory, np.ndarray) or memory.dtype != np.uint8 or not memory.flags.c_contiguous:
        return None
    begin = end = _address(parts[0])
    for part in parts:
        if part.base is not memory or not part.flags.c_contiguous or _address(part) != end:
            return None
        end += part.nbytes
    at = _address(memory)
    return memory.reshape(-1)[begin - at : end - at].view(np.int32).reshape(-1, parts[0].shape[1])


def _address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
