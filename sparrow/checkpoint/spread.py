"""`Spread`: rows on the devices of a mesh, to and from their logical order, a block at a time.

Neither the host nor a device ever holds more than a block, and files have the bytes that one device would write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy.typing as npt

from sparrow.embedding.sharding import blocks, layout, shards

BLOCK_BYTES: Final = 4 << 20
"""Bytes that are copied from or to the devices at once: large enough for the disk, small beside everything else."""

Array = npt.NDArray[Any]
Rows = blocks.Rows


class Spread(NamedTuple):
    """Where the rows of one stack are."""

    shards: shards.Shards
    layout: layout.Layout

    def blocks(self, array: Rows, start: int, end: int) -> Iterator[Array]:
        """Return rows ``start`` to ``end`` in order, on the host; of every process, where there are several."""
        if self.shards.processes > 1:
            yield from blocks.gathered_blocks(
                self.shards, self.layout, array, (start, end), self._block_bytes(array, end - start)
            )
            return
        waiting: dict[int, Array] = {}  # by first row: devices may give the parts of a block in another order
        pieces = blocks.pieces(self.shards, self.layout, array, (start, end), self._block_bytes(array, end - start))
        for first, rows in pieces:
            waiting[first] = rows
            while start in waiting:
                rows = waiting.pop(start)
                start += len(rows)
                yield rows

    def pieces(self, array: Rows, start: int, end: int) -> Iterator[tuple[int, Array]]:
        """Return the rows that this process gets, each piece with its first row, counted from ``start``."""
        size = self._block_bytes(array, end - start)
        for first, rows in blocks.pieces(self.shards, self.layout, array, (start, end), size):
            yield first - start, rows

    def placed(self, array: Any, span: slice, rows: Any) -> Any:
        """Return ``array``, which is given away, with the rows of ``span`` replaced by ``rows``, such as `SavedRows`.

        Each process reads its own rows; their checksums are compared at the end.
        """
        size, start = self._block_bytes(array, span.stop - span.start), span.start
        new = blocks.placed(
            self.shards,
            self.layout,
            array,
            lambda first, last: rows.between(first - start, last - start),
            (start, span.stop),
            give_away=True,
            block_bytes=size,
        )
        rows.check()
        return new

    def _block_bytes(self, array: Rows, rows: int) -> int:
        """Bytes on each device: a power of two, so that a few compiled programs serve tables of all sizes."""
        wanted = max(1, array.nbytes // array.shape[0] * rows)
        whole = min(BLOCK_BYTES * self.shards.processes, 1 << (wanted - 1).bit_length())
        return max(1, whole // self.layout.shards)
