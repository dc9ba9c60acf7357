"""`Spread`: rows on the devices of a mesh, to and from their logical order, a block at a time.

Neither the host nor a device ever holds more than a block, and files have the bytes that one device would write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from sparrow.embedding.sharding import blocks, layout, shards

BLOCK_BYTES: Final = 4 << 20
"""Bytes that are copied from or to the devices at once: large enough for the disk, small beside everything else."""

Array = npt.NDArray[Any]


class Spread(NamedTuple):
    """Where the rows of one stack are."""

    shards: shards.Shards
    layout: layout.Layout

    def blocks(self, array: jax.Array, start: int, end: int) -> Iterator[Array]:
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

    def pieces(self, array: jax.Array, start: int, end: int) -> Iterator[tuple[int, Array]]:
        """Return the rows that this process gets, each piece with its first row, counted from ``start``."""
        size = self._block_bytes(array, end - start)
        for first, rows in blocks.pieces(self.shards, self.layout, array, (start, end), size):
            yield first - start, rows

    def placed(self, array: jax.Array, span: slice, read: Iterable[tuple[int, Array]]) -> jax.Array:
        """Return ``array``, which is given away, with the rows of ``span`` replaced by the blocks of ``read``.

        Each of several processes reads its own rows by ``read.between``; their checksums are compared at the end.
        """
        if self.shards.processes > 1:
            source: Any = read
            new = self._placed(array, span, lambda first, last: source.between(first - span.start, last - span.start))
            source.check()
            return new
        rows = _InOrder(iter(read))
        new = self._placed(array, span, lambda first, last: rows.take(last - first))
        rows.end()
        return new

    def _placed(self, array: jax.Array, span: slice, read: Callable[[int, int], Array]) -> jax.Array:
        size = self._block_bytes(array, span.stop - span.start)
        ends = (span.start, span.stop)
        return blocks.placed(self.shards, self.layout, array, read, ends, give_away=True, block_bytes=size)

    def _block_bytes(self, array: jax.Array, rows: int) -> int:
        """Bytes on each device: a power of two, so that a few compiled programs serve tables of all sizes."""
        wanted = max(1, array.nbytes // array.shape[0] * rows)
        whole = min(BLOCK_BYTES * self.shards.processes, 1 << (wanted - 1).bit_length())
        return max(1, whole // self.layout.shards)


class _InOrder:
    """Blocks of rows as one stream, of which any number is taken at a time."""

    def __init__(self, blocks: Iterator[tuple[int, Array]]) -> None:
        self._blocks = blocks
        self._held: Array | None = None

    def take(self, count: int) -> Array:
        taken: list[Array] = []
        while count:
            if self._held is None or not len(self._held):
                _, self._held = next(self._blocks)
            taken.append(self._held[:count])
            self._held = self._held[count:]
            count -= len(taken[-1])
        return taken[0] if len(taken) == 1 else np.concatenate(taken)

    def end(self) -> None:
        """Ask for the block after the last one, which compares the checksum."""
        for _ in self._blocks:
            raise ValueError("there are more rows than were taken")
