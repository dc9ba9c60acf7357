"""`Cut`: the begin and end of a batch in windows of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sparrow.data.block import Block
from sparrow.data.position import Position
from sparrow.data.windows import Window


class Piece(NamedTuple):
    """Rows ``begin`` to ``end`` of a window."""

    window: Window
    begin: int
    end: int

    def rows(self) -> Block:
        """Return the rows, once they are made."""
        return self.window.rows.result().cut(self.begin, self.end)


class Cut(NamedTuple):
    """A batch that is not made yet.

    Attributes:
      pieces: its rows.
      number: the number of batches up to this one.
      after: the position after it.
      skipped: malformed rows up to that position.
      freed: memory that is free once it is taken.
    """

    pieces: list[Piece]
    number: int
    after: Position
    skipped: int
    freed: int

    @property
    def epoch(self) -> int:
        """The epoch of its rows."""
        return self.pieces[0].window.start.epoch

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return sum(piece.end - piece.begin for piece in self.pieces)

    @property
    def begins_epoch(self) -> bool:
        """Whether its rows are the first of an epoch."""
        first = self.pieces[0]
        return first.window.start.chunk == 0 and first.begin == 0


def cuts(windows: Iterator[Window], start: Position, size: int, drop_remainder: bool) -> Iterator[Cut]:
    """Yield the batches of ``size`` rows, from the position ``start`` on."""
    count, taken = start.batches, start.row
    held: list[Piece] = []  # rows that wait for more
    freed = 0  # memory of windows that are no longer needed
    for window in windows:
        at, end = window.start, window.count
        seen = at.skipped + window.skipped
        if held and held[0].window.start.epoch != at.epoch:
            freed += _reserved(held)
            if not drop_remainder:
                count += 1
                yield Cut(held, count, dataclasses.replace(at, row=0, batches=count), seen - window.skipped, freed)
                freed = 0
            held = []
        waiting = sum(piece.end - piece.begin for piece in held)
        while waiting + end - taken >= size:
            more = size - waiting
            pieces = [*held, Piece(window, taken, taken + more)] if more else held
            freed += _reserved(held)
            taken, waiting, held = taken + more, 0, []
            if taken == end:
                freed += window.nbytes
            count += 1
            yield Cut(pieces, count, dataclasses.replace(at, row=taken, batches=count), seen, freed)
            freed = 0
        if taken < end:
            held.append(Piece(window, taken, end))
        elif not end:
            freed += window.nbytes
        taken = 0
    if held and not drop_remainder:
        first = held[0].window.start
        after = dataclasses.replace(first, epoch=first.epoch + 1, chunk=0, row=0, skipped=seen, batches=count + 1)
        yield Cut(held, count + 1, after, seen, freed + _reserved(held))


def together(batches: Iterator[Cut], most: int) -> Iterator[list[Cut]]:
    """Yield batches in groups of ``most``, in order; the last has fewer, and so has one that an error follows.

    >>> [len(group) for group in together(iter([None] * 5), 2)]
    [2, 2, 1]
    """
    group: list[Cut] = []
    error: Exception | None = None
    while True:
        try:
            group.append(next(batches))
        except StopIteration:
            break
        except Exception as problem:  # raised after the batches before it
            error = problem
            break
        if len(group) == most:
            yield group
            group = []
    if group:
        yield group
    if error is not None:
        raise error


def _reserved(pieces: Sequence[Piece]) -> int:
    return sum(piece.window.nbytes for piece in pieces)
