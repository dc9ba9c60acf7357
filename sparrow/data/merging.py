"""Batches from several shares of the data: the same number of rows of each, in the order of the shares."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping

from sparrow.data.cuts import Cut, Piece
from sparrow.data.errors import DataError
from sparrow.data.position import Position
from sparrow.data.shares import Division
from sparrow.data.windows import Window


def told(
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
      division: the shares, and the number of this process.
      batch_size: the rows of a batch, in all processes.
      drop_remainder: as of `Pipeline`.
      epochs: as of `Pipeline`.
      rows: the rows of an epoch, where they are known.
      too_few: returns the error of an epoch without a batch, from its number of rows.
      some_window: returns a window that was read, whose columns a batch without rows has.
      is_over: returns whether no further batch is needed.
    """

    division: Division
    batch_size: int
    drop_remainder: bool
    epochs: int | None
    rows: int | None
    too_few: Callable[[int], DataError]
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

        while self.epochs is None or epoch < self.epochs:
            found = here()
            if not self._exists(epoch, made, made - first, {share: head.rows for share, head in found.items()}):
                if not made:
                    raise self.too_few(sum(head.rows for head in found.values()))
                while found:  # rows that drop_remainder leaves out
                    for share in found:
                        take(share)
                    found = here()
                epoch, made, first = epoch + 1, 0, 0
                continue
            pieces: list[Piece] = []
            for share, begin, end in self.division.own(self.batch_size):
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
        each, count, peers = self.batch_size // self.division.shares, self.division.shares, self.division.peers
        read = {one.share for one in self.division.own(self.batch_size)}
        if self.drop_remainder and any(own.get(share, 0) < each for share in read):
            return False
        if not self.drop_remainder and own:
            return True
        others = [share for share in range(count) if share not in read]
        if self.rows is not None and others:  # shares differ by one row at most
            fewest, most = self.rows // count, -(-self.rows // count)
            return (made + 1) * each <= fewest if self.drop_remainder else made * each < most
        wanted, every = ((here + 1) * each, all) if self.drop_remainder else (here * each + 1, any)
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
