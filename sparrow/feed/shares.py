"""Shares of the data: several processes read an epoch together, each of them its own share.

The chunks of an epoch, in their order, are dealt in rounds of `ROUND` chunks for each share. A share of a round is a
run of consecutive rows, so that a process reads most chunks alone; a chunk on the border of two shares is read for
both. Where the rows of every chunk are known, shares have the same number of rows, or one more. A batch has the same
number of rows of each share. All this depends on the number of shares alone, which a position remembers: any number of
processes can continue with the same examples in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

ROUND: Final = 8
"""Chunks for each share that are dealt at a time."""


class Portion(NamedTuple):
    """The rows from ``begin / of`` to ``end / of`` of a chunk."""

    chunk: int
    begin: int
    end: int
    of: int

    @property
    def is_whole(self) -> bool:
        return self.end - self.begin == self.of

    def range(self, rows: int) -> tuple[int, int]:
        """Return the first row, and the row after the last, of a chunk with ``rows`` rows.

        >>> Portion(0, 1, 2, of=3).range(10)
        (3, 6)
        """
        return rows * self.begin // self.of, rows * self.end // self.of


def whole(chunk: int) -> Portion:
    """Return all rows of a chunk."""
    return Portion(chunk, 0, 1, 1)


def portions(order: Sequence[int], rows_of: Callable[[int], int | None], share: int, count: int) -> Iterator[Portion]:
    """Yield the portions of the share ``share`` of ``count``: at least one, which may be empty.

    ``rows_of`` returns the rows of a chunk; where it returns None for one of them, all chunks count the same.

    >>> [list(portions([0, 1, 2], lambda chunk: 10, share, 2)) for share in range(2)]
    [[Portion(chunk=0, begin=0, end=10, of=10), Portion(chunk=1, begin=0, end=5, of=10)],
     [Portion(chunk=1, begin=5, end=10, of=10), Portion(chunk=2, begin=0, end=10, of=10)]]
    """
    if count == 1:
        yield from map(whole, order)
        return
    found = [rows_of(chunk) for chunk in order]
    sizes = [count if size is None else size for size in (found if None not in found else [None] * len(found))]
    dealt, is_empty = 0, True
    for first in range(0, len(order), ROUND * count):
        last = first + ROUND * count
        total = dealt + sum(sizes[first:last])
        # The share has every count-th row by number, so that shares of all rounds differ by one row at most.
        parts = [_every(total, one, count) - _every(dealt, one, count) for one in range(count)]
        begin = sum(parts[:share])
        end, at = begin + parts[share], 0
        for chunk, size in zip(order[first:last], sizes[first:last], strict=True):
            a, b = max(begin - at, 0), min(end - at, size)
            if a < b:
                is_empty = False
                yield Portion(chunk, a, b, size)
            at += size
        dealt = total
    if is_empty:
        yield Portion(order[0], 0, 0, 1)


def _every(total: int, share: int, count: int) -> int:
    """Return how many numbers below ``total`` are ``share`` modulo ``count``."""
    return (total + count - 1 - share) // count


class Slice(NamedTuple):
    """The rows ``begin`` to ``end`` of a share's part of a batch, which one process takes."""

    share: int
    begin: int
    end: int


class Peers(Protocol):
    """The other processes, which read the other shares."""

    def tell(self, share: int, epoch: int, rows: int, is_last: bool) -> None:
        """Tell them that a share has ``rows`` rows in an epoch so far; ``is_last``: and no more."""

    def failed(self, share: int) -> None:
        """Tell them that a share cannot be read."""

    def have(self, share: int, epoch: int, rows: int, is_over: Callable[[], bool]) -> bool:
        """Wait until it is known whether a share of theirs has ``rows`` rows in an epoch, and return it.

        True where the share cannot be read: its process reports that at this batch.
        """


class Division(NamedTuple):
    """A division of the data in shares, and the number of this process; ``peers`` None: there are no others."""

    shares: int = 1
    process: int = 0
    processes: int = 1
    peers: Peers | None = None

    def own(self, batch_size: int) -> list[Slice]:
        """Return the parts of a batch that this process takes: its rows are those of all shares, in order.

        >>> Division(2, process=1, processes=4).own(16)
        [Slice(share=0, begin=4, end=8)]
        """
        each = batch_size // self.shares
        first, last = (number * batch_size // self.processes for number in (self.process, self.process + 1))
        slices = [Slice(i, max(first - i * each, 0), min(last - i * each, each)) for i in range(self.shares)]
        return [one for one in slices if one.begin < one.end]
