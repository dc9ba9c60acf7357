"""`Layout`: which devices hold which row of a stack, and which of its columns. Nothing is stored: a formula each way.

Every placement is the same formula. The columns of a row are cut into ``columns`` pieces. The rows of a table's first
piece lie in turned blocks over some devices, from ``device`` on; the next piece has the same number after them.
Over all devices: split by rows. Over one: a table with one owner. Several pieces over one each: split by columns. Over
the devices of a host each: a grid. Only copies on every device are another kind: they have all rows in order.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from types import ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

MAX_SHARDS = 1 << 15
"""The most shards: `turn` multiplies a half of its hash by their number, in 32 bits."""

Ints = npt.NDArray[np.int32]


def turn(local: Any, shards: Any, xp: ModuleType = np) -> Any:
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


class Span(NamedTuple):
    """Consecutive rows of a stack, ``first`` to ``end``, of tables with one place.

    Attributes:
      first, end: the rows.
      device, over: the first of the devices that hold the first piece of these rows, and their number.
      local: the local row where they begin on each of them.
    """

    first: int
    end: int
    device: int
    over: int
    local: int


@dataclasses.dataclass(frozen=True)
class Layout:
    """A stack of ``num_rows`` rows over shards.

    A block of consecutive rows has one row on each device of its place, turned by a hash of the block's number: ids
    that are sorted by frequency, multiples of a number, or the newest ones only, all spread evenly.

    >>> layout = Layout(num_rows=10, shards=4, first_rows=(0,))
    >>> owners, local = layout.place(np.arange(8))
    >>> owners.tolist(), local.tolist()
    ([0, 1, 2, 3, 1, 2, 3, 0], [0, 0, 0, 0, 1, 1, 1, 1])
    >>> layout.logical(owners, local).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    >>> Layout(10, 4, (0, 6), places=((2, 1), (1, 1))).place(np.array([0, 5, 6, 9]))[0].tolist()
    [2, 2, 1, 1]

    Attributes:
      num_rows: rows of the stack.
      shards: the number of shards.
      first_rows: where each table begins in the stack.
      places: device and over of each table, as in `Span`; empty: all devices for each.
      columns: the pieces of each row. With several, all tables are over as many, and begin at multiples of
        ``columns * over`` devices, so that a device has the same piece of all its rows.
      copies: whether every shard holds all rows, in order.
    """

    num_rows: int
    shards: int
    first_rows: tuple[int, ...]
    places: tuple[tuple[int, int], ...] = ()
    columns: int = 1
    copies: bool = False

    @functools.cached_property
    def spans(self) -> tuple[Span, ...]:
        """All rows, in order."""
        places = self.places or ((0, 1 if self.copies else self.shards),) * len(self.first_rows)
        ends = (*self.first_rows[1:], self.num_rows)
        used = np.zeros(self.shards, np.int64)  # local rows
        made = []
        by_table = zip(places, self.first_rows, ends, strict=True)
        for (device, count), tables in itertools.groupby(by_table, operator.itemgetter(0)):
            own = [*tables]
            first, end = own[0][1], own[-1][2]
            at = slice(device, device + count * self.columns)
            made.append(Span(first, end, device, count, int(used[at].max())))
            used[at] = self.local_end(made[-1])
        return tuple(made)

    def local_end(self, span: Span) -> int:
        """Return the local row where a span ends: a multiple of the shards, so that blocks can be exchanged."""
        return span.local + -(-(span.end - span.first) // (span.over * self.shards)) * self.shards

    @functools.cached_property
    def local_rows(self) -> int:
        """Rows of each shard, some of them unused."""
        return max(map(self.local_end, self.spans))

    @functools.cached_property
    def routed(self) -> tuple[int, int, Ints, int]:
        """The first piece of all rows, as route.cc takes it; others are ``over`` devices later each.

        Its rows, the shards, (spans, 4) int32, and the number of spans: first row, first shard, number of shards and
        first local row of each.
        """
        spans = [(span.first, span.device, span.over, span.local) for span in self.spans]
        return int(self.num_rows), int(self.shards), np.array(spans, np.int32), len(spans)

    def place(self, rows: Any) -> tuple[Any, Any]:
        """Return the shard of the first piece of rows, and their local row."""
        first, device, count, local = self.routed[2].T
        at = np.searchsorted(first, rows, side="right") - 1
        number, rest = np.divmod(rows - first[at], count[at])
        own = local[at] + number
        return device[at] + (rest + turn(own, count[at].astype(np.uint32))) % count[at], own

    def logical(self, shard: Any, local: Any, xp: ModuleType = np) -> Any:
        """Return the row of a shard and a local row: inverts `place`; unused local rows give ``num_rows``."""
        made = xp.full_like(local + shard, self.num_rows)
        for first, end, device, count, begin in self.spans:
            piece, within = (0, 0) if self.copies else ((shard - device) // count, (shard - device) % count)
            row = first + (local - begin) * count + (within - turn(local, count, xp)) % count
            here = (piece >= 0) & (piece < self.columns) & (local >= begin) & (row < end)
            made = xp.where(here, row, made)
        return made

    def piece(self, shard: Any) -> Any:
        """Return the number of the columns that a shard holds."""
        count = self.spans[0].over
        return shard % (self.columns * count) // count

    @functools.cached_property
    def local_first_rows(self) -> Ints:
        """(shards, tables) where each table begins on each shard. A block at a boundary holds rows of two tables.

        A table without rows on a shard begins, and ends, where the next one does.
        """
        firsts = np.array(self.first_rows, np.int64)
        shards = np.arange(self.shards)[:, None]
        made = np.full((self.shards, len(firsts)), self.local_rows, np.int64)
        for span in self.spans:
            of_span = slice(*np.searchsorted(firsts, (span.first, span.end)))
            first = firsts[of_span][None]
            at = span.local + (first - span.first) // span.over
            begins = at + (self.logical(shards, at) < first)
            devices = slice(None) if self.copies else slice(span.device, span.device + self.columns * span.over)
            made[devices, of_span] = begins[devices]
        starts: Ints = np.minimum.accumulate(made[:, ::-1], axis=1)[:, ::-1].astype(np.int32)
        return starts

    def table_rows(self, shard: jax.Array) -> jax.Array:
        """(local_rows,) int32: the number that each row of a shard has in its own table. For compiled programs."""
        import jax.numpy as jnp

        local = jnp.arange(self.local_rows, dtype=jnp.int32)
        starts = jnp.asarray(self.local_first_rows)[shard]
        table = jnp.searchsorted(starts, local, side="right") - 1
        first = jnp.array(self.first_rows, jnp.int32).at[table].get(mode="clip")
        rows: jax.Array = self.logical(shard, local, jnp) - first
        return rows
