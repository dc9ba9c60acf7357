"""`Layout`: which device holds which row of a stack. Nothing is stored: both directions are a formula."""

from __future__ import annotations

import dataclasses
import functools
from types import ModuleType
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

MAX_SHARDS = 1 << 15
"""The most shards: `turn` multiplies a half of its hash by their number, in 32 bits."""


def turn(local: Any, shards: int, xp: ModuleType = np) -> Any:
    """Return the rotation of a block of rows: 0 to ``shards - 1``, from a hash of the block's number.

    ``xp`` is `numpy` or `jax.numpy`; both give the same numbers, as does ``kernels/feed/src/route.cc``.

    >>> turn(np.arange(8), 4).tolist()
    [0, 1, 3, 1, 3, 1, 2, 2]
    """
    x = xp.asarray(local).astype(xp.uint32)
    x = (x ^ (x >> 16)) * xp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * xp.uint32(0x846CA68B)
    x = x ^ (x >> 16)
    high, low = x >> 16, x & 0xFFFF  # the upper 32 bits of x * shards, without numbers of 64 bits
    return ((high * shards + ((low * shards) >> 16)) >> 16).astype(xp.int32)


@dataclasses.dataclass(frozen=True)
class Layout:
    """A stack of ``num_rows`` rows over shards: row r is the local row ``r // shards`` of one of them.

    A block of ``shards`` consecutive rows has one row on every shard, turned by a hash of the block's number: ids that
    are sorted by frequency, multiples of a number, or the newest ones only, all spread evenly.

    >>> layout = Layout(num_rows=10, shards=4, first_rows=(0,))
    >>> owners, local = layout.place(np.arange(8))
    >>> owners.tolist(), local.tolist()
    ([0, 1, 2, 3, 1, 2, 3, 0], [0, 0, 0, 0, 1, 1, 1, 1])
    >>> layout.logical(owners, local).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]

    Attributes:
      num_rows: rows of the stack.
      shards: the number of shards.
      first_rows: where each table begins in the stack.
    """

    num_rows: int
    shards: int
    first_rows: tuple[int, ...]

    @functools.cached_property
    def local_rows(self) -> int:
        """Rows of each shard, some unused at the end: a multiple of ``shards``, so that blocks can be exchanged."""
        return -(-self.num_rows // (self.shards * self.shards)) * self.shards

    def place(self, rows: Any, xp: ModuleType = np) -> tuple[Any, Any]:
        """Return the shard and the local row of rows of the stack."""
        local = rows // self.shards
        return (rows + turn(local, self.shards, xp)) % self.shards, local

    def logical(self, shard: Any, local: Any, xp: ModuleType = np) -> Any:
        """Return the row of a shard and a local row: inverts `place`; unused local rows give ``num_rows`` or more."""
        return local * self.shards + (shard - turn(local, self.shards, xp)) % self.shards

    @functools.cached_property
    def local_first_rows(self) -> npt.NDArray[np.int32]:
        """(shards, tables) where each table begins on each shard. A block at a boundary holds rows of two tables."""
        first = np.array(self.first_rows, np.int64)[None]
        at = first // self.shards
        shard = np.arange(self.shards)[:, None]
        begins: npt.NDArray[np.int32] = (at + (self.logical(shard, at) < first)).astype(np.int32)
        return begins

    def table_rows(self, shard: jax.Array) -> jax.Array:
        """(local_rows,) int32: the number that each row of a shard has in its own table. For compiled programs."""
        import jax.numpy as jnp

        local = jnp.arange(self.local_rows, dtype=jnp.int32)
        starts = jnp.asarray(self.local_first_rows)[shard]
        table = jnp.searchsorted(starts, local, side="right") - 1
        first = jnp.array(self.first_rows, jnp.int32).at[table].get(mode="clip")
        rows: jax.Array = self.logical(shard, local, jnp) - first
        return rows
