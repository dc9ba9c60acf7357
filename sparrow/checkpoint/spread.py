"""`Spread`: rows on the devices of a mesh, to and from their logical order, a block at a time.

Neither the host nor a device ever holds more than a block, and files have the bytes that one device would write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from sparrow.checkpoint.errors import CheckpointError
from sparrow.embedding.sharding import blocks, layout, shards

BLOCK_BYTES: Final = 4 << 20
"""What is copied off or onto the devices at once: large enough for the disk, small beside everything else."""

Array = npt.NDArray[Any]


class Spread(NamedTuple):
    """Where the rows of one stack are."""

    shards: shards.Shards
    layout: layout.Layout

    def blocks(self, array: jax.Array, start: int, end: int) -> Iterator[Array]:
        """Return rows ``start`` to ``end`` in order, on the host."""
        self._refuse_processes()
        waiting: dict[int, Array] = {}  # by first row: devices may give the parts of a block in another order
        pieces = blocks.pieces(self.shards, self.layout, array, (start, end), self._block_bytes(array, end - start))
        for first, rows in pieces:
            waiting[first] = rows
            while start in waiting:
                rows = waiting.pop(start)
                start += len(rows)
                yield rows

    def placed(self, array: jax.Array, span: slice, read: Iterator[tuple[int, Array]]) -> jax.Array:
        """Return ``array``, which is given away, with the rows of ``span`` replaced by the blocks of ``read``."""
        self._refuse_processes()
        rows = _InOrder(read)
        new = blocks.placed(
            self.shards,
            self.layout,
            array,
            lambda first, last: rows.take(last - first),
            (span.start, span.stop),
            give_away=True,
            block_bytes=self._block_bytes(array, span.stop - span.start),
        )
        rows.end()
        return new

    def _block_bytes(self, array: jax.Array, rows: int) -> int:
        """Bytes on each device: a power of two, so that a few compiled programs serve tables of all sizes."""
        wanted = max(1, array.nbytes // array.shape[0] * rows)
        return max(1, min(BLOCK_BYTES, 1 << (wanted - 1).bit_length()) // self.layout.shards)

    def _refuse_processes(self) -> None:
        if self.shards.processes > 1:
            raise CheckpointError(
                f"the tables are spread over {self.shards.processes} processes, and checkpoints are of one process: "
                "give one process all devices of the mesh"
            )


class _InOrder:
    """Blocks of rows as one stream, of which any number is taken at a time."""

    def __init__(self, blocks: Iterator[tuple[int, Array]]) -> None:
        self._blocks = blocks
        self._held: Array | None = None

    def take(self, count: int) -> Array:
        """Return the next ``count`` rows."""
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
