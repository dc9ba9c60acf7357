"""`Cut`: the begin and end of a batch in windows of rows; of several shares, the same number of rows of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sparrow.data import Block
from sparrow.feed.batching import Cost, Position
from sparrow.feed.reading import Reading, Window
from sparrow.feed.shares import Division


class Piece(NamedTuple):
    """Rows ``begin`` to ``end`` of a window."""

    window: Window
    begin: int
    end: int

    def rows(self) -> Block:
        return self.window.rows().cut(self.begin, self.end)


class Cut(NamedTuple):
    """A batch that is not made yet: its rows, and the number of batches up to it.

    ``skipped`` and ``late``: malformed and late rows up to the position ``after`` it; ``freed``: memory that is free
    once it is taken.
    """

    pieces: list[Piece]
    number: int
    after: Position
    skipped: int
    freed: int
    late: int = 0

    @property
    def epoch(self) -> int:
        return self.pieces[0].window.start.epoch

    @property
    def rows(self) -> int:
        return sum(piece.end - piece.begin for piece in self.pieces)

    @property
    def begins_epoch(self) -> bool:
        first = self.pieces[0]
        return first.window.start.chunk == 0 and first.begin == 0


def cuts(
    windows: Iterator[Window | None], start: Position, size: int, drop_remainder: bool, cost: Cost | None = None
) -> Iterator[Cut | None]:
    """Yield the batches of ``size`` rows, from the position ``start`` on; with a ``cost`` of at most as many.

    None: the next one must be waited for, as the next window must.
    """
    count, taken = start.batches, start.row
    held: list[Piece] = []  # rows that wait for more
    spent = 0.0  # their cost
    freed = 0  # memory of windows that are no longer needed

    def made(pieces: list[Piece], after: Position, seen: int, late: int = 0) -> Cut:
        nonlocal count, freed
        count, own, freed = count + 1, freed, 0
        return Cut(pieces, count, dataclasses.replace(after, batches=count), seen, own, late)

    for window in windows:
        if window is None:
            yield None
            continue
        at, end = window.start, window.count
        seen = at.skipped + window.skipped
        if held and held[0].window.start.epoch != at.epoch:
            freed += _reserved(held)
            if not drop_remainder:
                yield made(held, dataclasses.replace(at, row=0), seen - window.skipped)
            held, spent = [], 0.0
        waiting = sum(piece.end - piece.begin for piece in held)
        costs = None if cost is None else window.rows().column(("weights", cost.column)).astype(np.float64)
        while True:
            more = size - waiting
            if cost is not None and costs is not None:
                sums = spent + np.cumsum(costs[taken : taken + more])
                fitting = int(np.searchsorted(sums, cost.limit, side="right"))
                if taken + fitting < end:
                    more = min(more, max(fitting, not waiting))  # a row that costs more than the limit is alone
            if taken + more > end:
                break
            pieces = [*held, Piece(window, taken, taken + more)] if more else held
            freed += _reserved(held)
            taken, waiting, held, spent = taken + more, 0, [], 0.0
            if taken == end:
                freed += window.nbytes
            yield made(pieces, dataclasses.replace(at, row=taken), seen, window.late)
        if taken < end:
            held.append(Piece(window, taken, end))
            spent += 0.0 if costs is None else float(costs[taken:].sum())
        elif not end:
            freed += window.nbytes
        taken = 0
        if window.cut is not None and held and not drop_remainder:
            freed += _reserved(held)
            yield made(held, window.cut, seen, window.late)
            held, spent = [], 0.0
    if held and not drop_remainder:
        first, freed = held[0].window.start, freed + _reserved(held)
        yield made(held, dataclasses.replace(first, epoch=first.epoch + 1, chunk=0, row=0, skipped=seen), seen)


def together(batches: Iterator[Cut | None], most: int) -> Iterator[list[Cut]]:
    """Yield batches in groups of ``most``, in order; the last has fewer, and so has one before an error or a wait.

    >>> [len(group) for group in together(iter([1, 2, 3, None, 4]), 2)]
    [2, 1, 1]
    """
    group: list[Cut] = []
    try:
        for batch in batches:
            if batch is not None:
                group.append(batch)
            if len(group) == most or (group and batch is None):
                yield group
                group = []
    except Exception:  # raised after the batches before it
        if group:
            yield group
        raise
    if group:
        yield group


def _reserved(pieces: Sequence[Piece]) -> int:
    return sum(piece.window.nbytes for piece in pieces)


def announced(
    windows: Iterator[Window], share: int, start: Position, epoch: int, division: Division
) -> Generator[Window, None, None]:
    """Yield the windows of a share, and tell the other processes the rows of each.

    ``start``: the position in the share; ``epoch``: the epoch of the run, which the share may have completed.
    """
    peers, rows, taken = division.peers, 0, start.row
    assert peers is not None
    try:
        for window in windows:
            while epoch < window.start.epoch:
                peers.tell(share, epoch, rows, is_last=True)
                epoch, rows = epoch + 1, 0
            rows, taken = rows + window.count - taken, 0
            peers.tell(share, epoch, rows, is_last=False)
            yield window
    except Exception:
        peers.failed(share)
        raise
    peers.tell(share, epoch, rows, is_last=True)


@dataclasses.dataclass
class Merged:
    """The batches of a process, from the batches of the shares that it reads.

    An epoch ends when every share has ended: a share that ends before the others leaves its part of a batch empty. With
    ``drop_remainder`` an epoch ends before the first batch that some share cannot fill.

    Attributes:
      reading: how the rows are read.
      division: the shares, and the number of this process.
      some_window: returns a window that was read, whose columns a batch without rows has.
      is_over: returns whether no further batch is needed.
    """

    reading: Reading
    division: Division
    some_window: Callable[[], Window]
    is_over: Callable[[], bool]

    def cuts(self, start: Position, shares: Mapping[int, Iterator[Cut]]) -> Generator[Cut, None, None]:
        """Yield the batches from ``start`` on, from those of each share that the process reads, which are of its part.

        Batches hold the rows of this process alone.
        """
        heads: dict[int, Cut | None] = {}
        at = [own if share in shares else None for share, own in enumerate(start.shares)]
        skipped = {share: start.of_share(share).skipped for share in shares}
        epoch, first, made, number, freed = start.epoch, start.row, start.row, start.batches, 0

        def take(share: int) -> None:
            nonlocal freed
            head = heads.pop(share)
            assert head is not None
            freed += head.freed
            skipped[share], at[share] = head.skipped, head.after.as_share()

        def here() -> dict[int, Cut]:
            """Return the next batch of each share that is not at the end of the epoch."""
            for share, cuts in shares.items():
                if share not in heads:
                    heads[share] = next(cuts, None)
            return {share: head for share, head in heads.items() if head is not None and head.epoch == epoch}

        batching = self.reading.batching
        while batching.epochs is None or epoch < batching.epochs:
            found = here()
            if not self._exists(epoch, made, made - first, {share: head.rows for share, head in found.items()}):
                if not made:
                    raise self.reading.too_few(sum(head.rows for head in found.values()))
                while found:  # rows that drop_remainder leaves out
                    for share in found:
                        take(share)
                    found = here()
                epoch, made, first = epoch + 1, 0, 0
                continue
            pieces: list[Piece] = []
            for share, begin, end in self.division.own(batching.batch_size):
                if share in found:
                    pieces += _rows(found[share].pieces, begin, end)
            for share in found:
                take(share)
            made, number = made + 1, number + 1
            after = dataclasses.replace(start, epoch=epoch, chunk=0, row=made, batches=number, shares=tuple(at))
            if self.division.shares == 1:
                after = dataclasses.replace(after.of_share(0), batches=number)
            yield Cut(pieces or [Piece(self.some_window(), 0, 0)], number, after, sum(skipped.values()), freed)
            freed = 0

    def _exists(self, epoch: int, made: int, here: int, own: Mapping[int, int]) -> bool:
        """Return whether the epoch has a batch after ``made`` batches, of which ``here`` since the start.

        ``own``: the rows of it in the shares that this process reads.
        """
        batch_size, drops = self.reading.batching.batch_size, self.reading.batching.drop_remainder
        each, count, peers = batch_size // self.division.shares, self.division.shares, self.division.peers
        read, rows = {one.share for one in self.division.own(batch_size)}, self.reading.rows
        if drops and any(own.get(share, 0) < each for share in read):
            return False
        if not drops and own:
            return True
        others = [share for share in range(count) if share not in read]
        if rows is not None and others:  # shares differ by one row at most
            fewest, most = rows // count, -(-rows // count)
            return (made + 1) * each <= fewest if drops else made * each < most
        wanted, every = ((here + 1) * each, all) if drops else (here * each + 1, any)
        assert peers is not None or not others
        return every(peers is not None and peers.have(share, epoch, wanted, self.is_over) for share in others)


def _rows(pieces: list[Piece], begin: int, end: int) -> list[Piece]:
    """Return the rows ``begin`` to ``end`` of some pieces, or as many of them as there are."""
    found, at = [], 0
    for piece in pieces:
        rows = piece.end - piece.begin
        a, b = max(begin - at, 0), min(end - at, rows)
        if a < b:
            found.append(Piece(piece.window, piece.begin + a, piece.begin + b))
        at += rows
    return found
