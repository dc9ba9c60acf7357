"""`Reading`: the rows of a source as windows, converted and in their final order."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Generator, Iterator

from sparrow.data.block import Block
from sparrow.data.converter import Converter
from sparrow.data.crew import Crew, do
from sparrow.data.errors import DataError
from sparrow.data.hashing import shuffled
from sparrow.data.memory import Memory
from sparrow.data.position import Position
from sparrow.data.rooms import Part, with_parts
from sparrow.data.shares import Portion, portions
from sparrow.data.sources.base import BadRows, Reader
from sparrow.data.stages import CONVERT, DECODE, READ, Stages
from sparrow.data.windows import Chunks, Window, joined


@dataclasses.dataclass(frozen=True)
class Reading:
    """An opened source, and the options that its rows are read with: those of `Pipeline`.

    Attributes:
      least: the usable rows that an epoch must have.
    """

    reader: Reader
    converter: Converter
    stages: Stages
    bad_rows: BadRows
    epochs: int | None
    shuffle_rows: int
    seed: int
    least: int

    def windows(
        self, start: Position, crew: Crew | None, memory: Memory, share: int = 0, count: int = 1
    ) -> Generator[Window, None, None]:
        """Yield the windows of a share of the data, from the one of ``start``."""
        epoch, chunk, skipped = start.epoch, start.chunk, start.skipped
        least = -(-self.shuffle_rows // count)
        chunks = Chunks(self._converted, self._order(epoch, chunk, share, count, least), crew, memory)
        while self.epochs is None or epoch < self.epochs:
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
                seeds = (self.seed, epoch, first, *([share] if count > 1 else [])) if self.shuffle_rows else None
                made = do(crew, functools.partial(self._joined, parts, seeds))
                at = dataclasses.replace(start, epoch=epoch, chunk=first, row=0, skipped=before)
                yield Window(made, rows, at, skipped - before, nbytes)
            if is_whole and count == 1 and usable < self.least:
                raise self.too_few(usable)
            epoch, chunk = epoch + 1, 0

    def empty(self, start: Position) -> Window:
        """Return a window without rows."""
        return Window(do(None, lambda: self._converted(Portion(0, 0, 0, 1), None)[0]), 0, start, 0, 0)

    @functools.cached_property
    def rows(self) -> int | None:
        """The rows of an epoch; None: not known before they are read, or some may be left out."""
        if self.bad_rows == "skip":
            return None
        found = [self.reader.rows_of(chunk) for chunk in range(self.reader.num_chunks)]
        return None if None in found else sum(rows for rows in found if rows is not None)

    def too_few(self, usable: int) -> DataError:
        """Return the error of an epoch that has too few usable rows."""
        text = (
            f"the {usable} rows that can be used do not fill a batch of {self.least}, and drop_remainder leaves "
            "them out; lower batch_size, or keep the remainder"
        )
        if not usable:
            text = "no row can be used: every one is malformed; set bad_rows to 'error' to see why"
        return DataError(text, self.reader.schemas[0][0])

    def _portions(self, epoch: int, share: int, count: int) -> list[Portion]:
        """Return the chunks of an epoch, or the portions of them that belong to a share, in order."""
        chunks = self.reader.num_chunks
        order = shuffled(chunks, self.seed, epoch).tolist() if self.shuffle_rows else list(range(chunks))
        return list(portions(order, self.reader.rows_of, share, count))

    def _order(
        self, epoch: int, chunk: int, share: int, count: int, least: int
    ) -> Iterator[tuple[Portion, Part | None]]:
        """Yield the chunks to read from there on, in all epochs, and memory for the rows of each."""
        while self.epochs is None or epoch < self.epochs:
            yield from with_parts(self._portions(epoch, share, count)[chunk:], self._rows_of, least)
            epoch, chunk = epoch + 1, 0

    def _rows_of(self, portion: Portion) -> int | None:
        """Return the rows that are converted to one place; a chunk that is cut has none."""
        return self.reader.rows_of(portion.chunk) if portion.is_whole else None

    def _converted(self, portion: Portion, part: Part | None) -> tuple[Block, int]:
        rows, bad = self._chunk(portion.chunk, part)
        if portion.is_whole:
            return rows, bad
        # Malformed rows of a chunk that several shares have are counted by the first of them.
        return rows.cut(*portion.range(len(rows))), bad if portion.begin == 0 else 0

    def _chunk(self, chunk: int, part: Part | None) -> tuple[Block, int]:
        with self.stages.timed(READ):
            encoded = self.reader.fetch(chunk) if self.converter.decodes else None
        if encoded is not None:
            began = time.perf_counter()
            chosen = functools.partial(self.reader.chosen, chunk)
            made = self.converter.decode(encoded, self.bad_rows, part, chosen)
            if made is not None:
                rows, bad, decoding = made
                self.stages.add(DECODE, decoding)
                self.stages.add(CONVERT, time.perf_counter() - began - decoding)
                self.stages.passed(len(rows))
                return rows, bad
        with self.stages.timed(DECODE):
            table = self.reader.read(chunk, self.bad_rows)
        with self.stages.timed(CONVERT):
            rows, bad = self.converter.convert(table, self.bad_rows)
        self.stages.passed(len(rows))
        return rows, bad

    def _joined(self, parts: list[Block], seeds: tuple[int, ...] | None) -> Block:
        with self.stages.timed(CONVERT):
            return joined(parts, seeds)
