"""`Reading`: the rows of a source as windows, read ahead by several threads, in their final order.

Windows depend on the order of chunks and their numbers of rows alone, never on the order of threads: any number of
threads makes the same windows.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from sparrow.data import Block, Converter, DataError, GrowingReader, Reader, concatenate, shuffled
from sparrow.feed.batching import Batching, Position
from sparrow.feed.crew import Crew, Job, do
from sparrow.feed.dead_letters import DeadLetters
from sparrow.feed.shares import Portion, portions, whole
from sparrow.feed.stages import CONVERT, DECODE, READ, Stages
from sparrow.feed.watermark import Watermark
from sparrow.kernels import feed

COPIES: Final = 3
"""Copies of the rows that are made ahead: as read, shuffled, and packed."""
AHEAD: Final = 4
"""Small chunks that are begun early by few threads, which then seldom wait for the next one."""
SMALL: Final = 2**25
"""Bytes that are reserved for a small chunk, at most."""

C = TypeVar("C")


class WaitInterrupted(Exception):
    """Raised where a stop was requested while waiting for rows."""


class Memory:
    """A count of the bytes that rows made ahead take, shared by threads.

    ``chunk``: the bytes of the largest chunk so far, which are reserved for others; 0: none was read.

    >>> memory = Memory(10)
    >>> memory.add(8)
    >>> memory.fits(3), memory.most
    (False, 8)
    """

    def __init__(self, limit: int, chunk: int = 0) -> None:
        self.limit, self.chunk = limit, chunk
        self.used = self.most = 0
        self._lock = threading.Lock()

    def add(self, nbytes: int) -> None:
        """Add ``nbytes``, which may be negative."""
        with self._lock:
            self.used += nbytes
            self.most = max(self.most, self.used)

    def fits(self, nbytes: int) -> bool:
        return self.used + nbytes <= self.limit


class WindowBuffer:
    """Memory for the rows of a window, taken when the first of them come: its chunks are joined without a copy."""

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


class BufferPart(NamedTuple):
    """The rows ``begin`` to ``end`` of a window's buffer."""

    buffer: WindowBuffer
    begin: int
    end: int

    def words(self, rows: int, width: int) -> npt.NDArray[np.int32] | None:
        """Return the memory, (rows, width); None: it is for another number of rows."""
        return self.buffer.words(width)[self.begin : self.end] if rows == self.end - self.begin else None


def with_buffers(
    chunks: Iterable[C], rows_of: Callable[[C], int | None], least: int
) -> Iterator[tuple[C, BufferPart | None]]:
    """Yield the chunks, each with its part of the buffer of its window: the chunks that have ``least`` rows together.

    ``rows_of`` returns the rows of a chunk; a chunk whose rows are not known, or that is a window, has no part.

    >>> [(chunk, part and part[1:]) for chunk, part in with_buffers(range(4), lambda chunk: 10, 15)]
    [(0, (0, 10)), (1, (10, 20)), (2, (0, 10)), (3, (10, 20))]
    """
    window: list[tuple[C, int]] = []
    for chunk in chunks:
        rows = rows_of(chunk)
        if rows is None:
            yield from _in_buffer(window)
            window = []
            yield chunk, None
            continue
        window.append((chunk, rows))
        if sum(own for _, own in window) >= least:
            yield from _in_buffer(window)
            window = []
    yield from _in_buffer(window)


def _in_buffer(window: list[tuple[C, int]]) -> Iterator[tuple[C, BufferPart | None]]:
    buffer, begin = WindowBuffer(sum(rows for _, rows in window)), 0
    for chunk, rows in window:
        yield chunk, BufferPart(buffer, begin, begin + rows) if len(window) > 1 else None
        begin += rows


class Window:
    """Converted rows of some chunks, which the first thread that needs them joins and shuffles.

    Attributes:
      count, skipped: the number of rows, and of malformed ones among those read for it.
      start: the position of the first row.
      nbytes: memory that is reserved for it.
      cut: the position after it, where a batch ends with it although it is not full; None: batches go on.
      late: late rows up to its end, of a source that grows.
    """

    def __init__(self, join: Callable[[], Block], count: int, start: Position, skipped: int, nbytes: int) -> None:
        self.count, self.start, self.skipped, self.nbytes = count, start, skipped, nbytes
        self.cut: Position | None = None
        self.late = 0
        self._join: Callable[[], Block] | None = join
        self._rows: Block | None = None
        self._lock = threading.Lock()

    def rows(self) -> Block:
        with self._lock:
            if self._join is not None:
                self._rows, self._join = self._join(), None
            assert self._rows is not None
            return self._rows


def _state(watermark: Watermark | None) -> dict[str, Any]:
    return {} if watermark is None else watermark.state()


def _arriving(reader: GrowingReader, chunk: int) -> Iterator[tuple[Portion, None] | None]:
    """Yield the chunks of a source that grows, from one on; None while the next one is not there."""
    while True:
        kind = reader.known(chunk)
        if kind in (None, "end", "stop"):
            yield None
            continue
        if kind == "chunk":
            yield whole(chunk), None
        chunk += 1


class Chunks:
    """The converted chunks of a run of epochs, in order, made ahead as far as the memory allows."""

    def __init__(
        self,
        convert: Callable[[Portion, BufferPart | None], tuple[Block, int]],
        order: Iterator[tuple[Portion, BufferPart | None] | None],
        crew: Crew | None,
        memory: Memory,
    ) -> None:
        """Take the chunks of all remaining epochs, None while there is none yet.

        Without a ``crew``, each is read when it is requested.

        ``convert`` returns the rows of a chunk, or of a portion of one, and the number of malformed ones.
        """
        self._convert, self._order, self._crew, self._memory = convert, order, crew, memory
        self._begun: deque[tuple[Job[tuple[Block, int]], int]] = deque()  # and the memory reserved for each

    def next(self) -> tuple[Block, int, int]:
        """Return the rows of the next chunk, the number of malformed ones, and the memory reserved for them."""
        if not self._begun:
            self._begin(must=True)
        while self._begin():
            pass
        job, reserved = self._begun.popleft()
        rows, bad = job.result()
        nbytes = COPIES * rows.nbytes
        self._memory.add(nbytes - reserved)
        self._memory.chunk = max(self._memory.chunk, nbytes)
        return rows, bad, nbytes

    def _begin(self, must: bool = False) -> bool:
        """Begin one more, if there is memory for it, or in any case where it ``must`` be."""
        if not must and not self._may_begin():
            return False
        chunk = next(self._order, None)
        if chunk is None:
            return False
        reserved = self._memory.chunk
        self._memory.add(reserved)
        self._begun.append((do(self._crew, functools.partial(self._convert, *chunk), urgent=False), reserved))
        return True

    def _may_begin(self) -> bool:
        """Return whether a thread is free, and there is memory. The largest chunk's size is the estimate for others."""
        largest = self._memory.chunk
        if self._crew is None or not largest:
            return False
        least = AHEAD if largest <= SMALL else 1
        return len(self._begun) < max(2 * self._crew.size, least) and self._memory.fits(largest)


@dataclasses.dataclass(frozen=True)
class Reading:
    """An opened source, and how its rows are read."""

    reader: Reader
    converter: Converter
    batching: Batching
    stages: Stages

    def windows(
        self, start: Position, crew: Crew | None, memory: Memory, share: int = 0, count: int = 1
    ) -> Generator[Window, None, None]:
        batching = self.batching
        epoch, chunk, skipped = start.epoch, start.chunk, start.skipped
        least = -(-batching.shuffle_rows // count)
        chunks = Chunks(self._converted, self._order(epoch, chunk, share, count, least), crew, memory)
        while batching.epochs is None or epoch < batching.epochs:
            chunks_here = len(self._portions(epoch, share, count))
            is_whole, usable = chunk == 0, 0
            while chunk < chunks_here:
                first, before = chunk, skipped
                parts: list[Block] = []
                rows = nbytes = 0
                while chunk < chunks_here and (not parts or rows < least):
                    part, bad, size = chunks.next()
                    parts.append(part)
                    rows, skipped, nbytes, chunk = rows + len(part), skipped + bad, nbytes + size, chunk + 1
                usable += rows
                shuffle = batching.shuffle_rows
                seeds = (batching.seed, epoch, first, *([share] if count > 1 else [])) if shuffle else None
                at = dataclasses.replace(start, epoch=epoch, chunk=first, row=0, skipped=before)
                join = functools.partial(self._joined, parts, seeds)
                yield Window(join, rows, at, skipped - before, nbytes)
            if is_whole and count == 1 and usable < batching.least:
                raise self.too_few(usable)
            epoch, chunk = epoch + 1, 0

    def growing(
        self,
        reader: GrowingReader,
        start: Position,
        crew: Crew | None,
        memory: Memory,
        is_over: Callable[[], bool],
        watermark: Watermark | None = None,
    ) -> Generator[Window | None, None, None]:
        """Yield the windows of a source that grows, from the one of ``start``; None: the next one must be waited for.

        Chunks stay in their order. ``is_over``: returns whether to stop waiting. ``watermark``: that of ``start``.
        """
        least, chunk, skipped, kind = self.batching.shuffle_rows, start.chunk, start.skipped, "cut"
        chunks = Chunks(self._converted, _arriving(reader, chunk), crew, memory)
        while kind != "end":
            first, before, water = chunk, skipped, _state(watermark)
            parts: list[Block] = []
            rows = nbytes = 0
            while not parts or rows < least:
                if reader.known(chunk) is None:
                    yield None
                kind = reader.wait(chunk, is_over)
                if kind == "stop" or (kind == "end" and is_over()):
                    raise WaitInterrupted
                if kind != "chunk":
                    break
                part, bad, size = chunks.next()
                part = part if watermark is None else self._in_time(watermark, reader, chunk, part)
                parts.append(part)
                rows, skipped, nbytes, chunk = rows + len(part), skipped + bad, nbytes + size, chunk + 1
            chunk += kind == "cut"
            seeds = (self.batching.seed, 0, first) if least else None
            stream = {**reader.mark(first), **water}
            place = dataclasses.replace(start, chunk=first, row=0, skipped=before, stream=stream)
            window = self.empty(place)
            if parts:
                window = Window(functools.partial(self._joined, parts, seeds), rows, place, skipped - before, nbytes)
            window.late = 0 if watermark is None else watermark.late
            if kind != "chunk":
                stream = {**reader.mark(chunk), **_state(watermark)}
                window.cut = dataclasses.replace(place, chunk=chunk, skipped=skipped, stream=stream)
            yield window

    def _in_time(self, watermark: Watermark, reader: GrowingReader, chunk: int, rows: Block) -> Block:
        """Return the rows of a chunk that are trained on, by the policy for late ones."""
        column, _, policy = watermark.event_time
        limit = watermark.limit
        late = watermark.passed(reader.flight(chunk, column), rows.column(("keys", column)))
        if late is None or policy == "train":
            return rows
        if policy == "dead_letter" and self._letters is not None:
            assert limit is not None  # some rows are late
            self._letters.add_late(reader.read(chunk, "skip"), self.converter, column, limit)
        return rows.take(np.flatnonzero(~late))

    def empty(self, start: Position) -> Window:
        return Window(lambda: self._converted(Portion(0, 0, 0, 1), None)[0], 0, start, 0, 0)

    @functools.cached_property
    def rows(self) -> int | None:
        """The rows of an epoch; None: not known before they are read, or some may be left out."""
        if self.batching.bad_rows == "skip":
            return None
        found = [self.reader.rows_of(chunk) for chunk in range(self.reader.num_chunks)]
        return None if None in found else sum(rows for rows in found if rows is not None)

    def too_few(self, usable: int) -> DataError:
        text = (
            f"the {usable} rows that can be used do not fill a batch of {self.batching.least}, and drop_remainder "
            "leaves them out; lower batch_size, or keep the remainder"
        )
        if not usable:
            text = "no row can be used: every one is malformed; set bad_rows to 'error' to see why"
        return DataError(text, self.reader.schemas[0][0])

    def _portions(self, epoch: int, share: int, count: int) -> list[Portion]:
        """Return the chunks of an epoch, or the portions of them that belong to a share, in order."""
        chunks = self.reader.num_chunks
        shuffles = self.batching.shuffle_rows > 0
        order = shuffled(chunks, self.batching.seed, epoch).tolist() if shuffles else list(range(chunks))
        return list(portions(order, self.reader.rows_of, share, count))

    def _order(
        self, epoch: int, chunk: int, share: int, count: int, least: int
    ) -> Iterator[tuple[Portion, BufferPart | None]]:
        """Yield the chunks to read from there on, in all epochs, and memory for the rows of each that is not cut."""

        def rows_of(portion: Portion) -> int | None:
            return self.reader.rows_of(portion.chunk) if portion.is_whole else None

        while self.batching.epochs is None or epoch < self.batching.epochs:
            yield from with_buffers(self._portions(epoch, share, count)[chunk:], rows_of, least)
            epoch, chunk = epoch + 1, 0

    @functools.cached_property
    def _letters(self) -> DeadLetters | None:
        return None if self.batching.dead_letters is None else DeadLetters(self.batching.dead_letters)

    def _converted(self, portion: Portion, memory: BufferPart | None) -> tuple[Block, int]:
        rows, bad = self._chunk(portion.chunk, memory)
        if bad and self._letters is not None and portion.begin == 0:
            self._letters.add(self.reader.read(portion.chunk, "skip"), self.converter)
        if portion.is_whole:
            return rows, bad
        # Malformed rows of a chunk that several shares have are counted by the first of them.
        return rows.cut(*portion.range(len(rows))), bad if portion.begin == 0 else 0

    def _chunk(self, chunk: int, memory: BufferPart | None) -> tuple[Block, int]:
        bad_rows = self.batching.bad_rows
        with self.stages.timed(READ):
            encoded = self.reader.fetch(chunk) if self.converter.decodes else None
        if encoded is not None:
            began = time.perf_counter()
            words, chosen = None if memory is None else memory.words, functools.partial(self.reader.chosen, chunk)
            made = self.converter.decode(encoded, bad_rows, words, chosen)
            if made is not None:
                rows, bad, decoding = made
                self.stages.add(DECODE, decoding)
                self.stages.add(CONVERT, time.perf_counter() - began - decoding)
                self.stages.passed(len(rows))
                return rows, bad
        with self.stages.timed(DECODE):
            table = self.reader.read(chunk, bad_rows)
        with self.stages.timed(CONVERT):
            rows, bad = self.converter.convert(table, bad_rows)
        self.stages.passed(len(rows))
        return rows, bad

    def _joined(self, parts: Sequence[Block], seeds: tuple[int, ...] | None) -> Block:
        """Return one block of all parts, shuffled by the seeds, if any."""
        with self.stages.timed(CONVERT):
            joined = concatenate(parts)
            return joined if seeds is None else joined.take(shuffled(len(joined), *seeds))
