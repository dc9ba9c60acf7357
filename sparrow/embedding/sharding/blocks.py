"""Between shards and logical order, block by block: first values, views and checkpoints. One all-to-all per block.

Local rows [a, b) of the devices of a span are consecutive rows of the stack. A block of m * n local rows becomes
m * over rows in logical order on each of n devices, device d holding the d-th part of the block, with all pieces of
their columns. No device ever holds more than a block.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.embedding.sharding.layout import Layout, Span, turn
from sparrow.embedding.sharding.on_host import HostRows
from sparrow.embedding.sharding.shards import EVERYWHERE, Shards

Array = npt.NDArray[Any]
Rows: TypeAlias = jax.Array | HostRows
"""The rows of a stack on the devices of a mesh, or in their host memory."""
Reader = Callable[[int, int], Array]
"""Returns rows [first, last) of a stack; rows past the end of the stack may be anything."""

BLOCK_BYTES: Final = 1 << 24
"""The size of a block on each device, if one local row for each pair of shards does not take more."""


class Block(NamedTuple):
    """Rows of a span: local rows ``first`` to ``first + size * n`` of its devices."""

    span: Span
    first: int
    size: int  # local rows of each shard that go to each device

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers on which compiled programs depend: devices, and ``size``."""
        return self.span.over, self.size

    @property
    def at(self) -> tuple[int, int]:
        """The first device, and the first local row."""
        return self.span.device, self.first

    def rows(self, shard: int) -> tuple[int, int]:
        """Return the first and last row that ``shard`` holds in logical order; some may be past the span's end."""
        first = self.span.first + (self.first - self.span.local + shard * self.size) * self.span.over
        return first, first + self.size * self.span.over


def blocks(layout: Layout, array: Rows, rows: tuple[int, int], block_bytes: int) -> Iterator[Block]:
    """Yield the blocks of about ``block_bytes`` on each device that hold ``rows`` of a stack, in order."""
    row_bytes = array.dtype.itemsize * math.prod(array.shape[1:]) * layout.columns
    largest = max(1, block_bytes // max(1, row_bytes * layout.shards))
    for span in layout.spans:
        for first in range(span.local, layout.local_end(span), largest * layout.shards):
            block = Block(span, first, min(largest, (layout.local_end(span) - first) // layout.shards))
            begin, end = block.rows(0)[0], min(block.rows(layout.shards - 1)[1], span.end)
            if begin < min(rows[1], span.end) and end > rows[0]:
                yield block


def placed(
    shards: Shards,
    layout: Layout,
    array: Rows,
    read: Reader,
    span: tuple[int, int],
    *,
    give_away: bool = False,
    block_bytes: int = BLOCK_BYTES,
) -> Rows:
    """Return a stack's array with rows ``span`` replaced by the rows that ``read`` gives, block by block.

    Each process reads only the rows that its devices hold of a block in logical order. All processes call it together.

    ``give_away``: whether ``array`` may be written in place.
    """
    for block in blocks(layout, array, span, block_bytes):
        low, high = max(span[0], block.span.first), min(span[1], block.span.end)
        pieces = [_padded(layout, read, block.rows(shard), (low, high), array) for shard in shards.local]
        rows = shards.put_parts(np.concatenate(pieces))
        part, begin = _part(layout, array, block)
        place = _place_in_place if give_away or part is not array else _place
        part = place(shards, layout, *block.shape, part, rows, (*block.at, begin, low, high))
        if isinstance(array, HostRows):
            array.put(block.first, part)
        else:
            array = part
        give_away = True  # from the first block on, the array is this function's own
    return array


def _part(layout: Layout, array: Rows, block: Block) -> tuple[jax.Array, int]:
    """Return an array with the local rows of a block, and where they begin in it."""
    if isinstance(array, HostRows):
        return array.part(block.first, layout.shards * block.size), 0
    return array, block.first


def pieces(
    shards: Shards, layout: Layout, array: Rows, span: tuple[int, int], block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[int, Array]]:
    """Rows ``span`` of a stack in logical order, as far as this process's devices get them: first row, and rows.

    Every row comes from one process only. All processes call this together, and take the same number of blocks.
    """
    for block in blocks(layout, array, span, block_bytes):
        rows = _ordered(shards, layout, array, block)
        base, end = block.rows(0)[0], min(span[1], block.span.end)
        for shard in rows.addressable_shards:
            first = base + (shard.index[0].start or 0)
            low, high = max(first, span[0]), min(first + shard.data.shape[0], end)
            if low < high and not shard.replica_id:  # others are copies on another axis of the mesh
                yield low, np.asarray(shard.data)[low - first : high - first]


def gathered(shards: Shards, layout: Layout, array: Rows, span: tuple[int, int]) -> Array:
    """Rows ``span`` of a stack in logical order, all of them, on the host of every process."""
    made = np.empty((span[1] - span[0], *_width(layout, array)), array.dtype)
    if shards.processes == 1:
        for first, rows in pieces(shards, layout, array, span):
            made[first - span[0] : first - span[0] + len(rows)] = rows
        return made
    at = 0
    for rows in gathered_blocks(shards, layout, array, span):
        made[at : at + len(rows)] = rows
        at += len(rows)
    return made


def gathered_blocks(
    shards: Shards, layout: Layout, array: Rows, span: tuple[int, int], block_bytes: int = BLOCK_BYTES
) -> Iterator[Array]:
    """Rows ``span`` of a stack in logical order, a block at a time, on the host of every process."""
    for block in blocks(layout, array, span, block_bytes):
        rows = _ordered(shards, layout, array, block)
        first, last = block.rows(0)[0], min(block.rows(layout.shards - 1)[1], block.span.end)
        yield np.asarray(_copied(shards, rows))[max(first, span[0]) - first : min(last, span[1]) - first]


def _ordered(shards: Shards, layout: Layout, array: Rows, block: Block) -> jax.Array:
    """Return a block in logical order, split over the shards as `Block.rows` has it."""
    part, begin = _part(layout, array, block)
    rows: jax.Array = _in_order(shards, layout.columns, *block.shape, part, (*block.at, begin))
    return rows


def _width(layout: Layout, array: Rows) -> tuple[int, ...]:
    """Return the shape of a row in logical order: one number, or all pieces of its columns."""
    return tuple(size * layout.columns for size in array.shape[1:])


def _padded(layout: Layout, read: Reader, rows: tuple[int, int], span: tuple[int, int], like: Rows) -> Array:
    """Return the wanted rows where they lie in ``span``, zeros elsewhere."""
    made = np.zeros((rows[1] - rows[0], *_width(layout, like)), like.dtype)
    low, high = max(rows[0], span[0]), min(rows[1], span[1])
    if low < high:
        made[low - rows[0] : high - rows[0]] = read(low, high)
    return made


@functools.partial(jax.jit, static_argnums=0)
def _copied(shards: Shards, array: jax.Array) -> jax.Array:
    return jax.lax.with_sharding_constraint(array, shards.everywhere)  # type: ignore[no-untyped-call, no-any-return]


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _in_order(shards: Shards, columns: int, count: int, size: int, array: jax.Array, at: tuple[Any, ...]) -> jax.Array:
    """Return a block of a stack's array in logical order, split over the shards as `Block.rows` has it."""
    n = shards.count

    def local(part: jax.Array, numbers: tuple[jax.Array, ...]) -> jax.Array:
        device, first, begin = numbers
        rows = jax.lax.dynamic_slice_in_dim(part, begin, n * size).reshape(n, size, *part.shape[1:])
        rows = shards.swap(rows)  # (shard, size, ...): every shard's rows of `size` blocks
        number = first + shards.index * size + jnp.arange(size, dtype=jnp.int32)
        owner = device + (jnp.arange(count, dtype=jnp.int32)[None] + turn(number, count, jnp)[:, None]) % count
        at = jnp.arange(size)[:, None]
        if part.ndim == 1:  # every piece has the number of its row
            return rows[owner, at].reshape(-1)
        pieces = [rows[owner + p * count, at] for p in range(columns)]  # (size, count, ...)
        return jnp.concatenate(pieces, axis=-1).reshape(size * count, -1)

    made: jax.Array = shards.each(local, (shards.split, EVERYWHERE), shards.split)(array, at)
    return made


def _placing(
    shards: Shards, layout: Layout, count: int, size: int, array: jax.Array, block: jax.Array, numbers: tuple[Any, ...]
) -> jax.Array:
    n = layout.shards

    def local(part: jax.Array, block: jax.Array, numbers: tuple[jax.Array, ...]) -> jax.Array:
        device, first, begin, low, high = numbers
        number = first + shards.index * size + jnp.arange(size, dtype=jnp.int32)
        rows = block.reshape(size, count, *block.shape[1:])
        place = (jnp.arange(count, dtype=jnp.int32)[:, None] - turn(number, count, jnp)[None]) % count
        own = rows[jnp.arange(size)[None], place]  # (count, size, ...): of each device
        pieces = jnp.split(own, layout.columns, axis=-1) if part.ndim > 1 else [own] * layout.columns
        if layout.copies:
            sent = jnp.broadcast_to(own, (n, *own.shape[1:]))
        else:
            sent = jnp.zeros((n, size, *part.shape[1:]), part.dtype)
            sent = jax.lax.dynamic_update_slice_in_dim(sent, jnp.concatenate(pieces), device, 0)
        new = shards.swap(sent).reshape(n * size, *part.shape[1:])
        logical = layout.logical(shards.index, first + jnp.arange(n * size, dtype=jnp.int32), jnp)
        inside = ((logical >= low) & (logical < high)).reshape(-1, *[1] * (part.ndim - 1))
        old = jax.lax.dynamic_slice_in_dim(part, begin, n * size)
        return jax.lax.dynamic_update_slice_in_dim(part, jnp.where(inside, new, old), begin, 0)

    made: jax.Array = shards.each(local, (shards.split, shards.split, EVERYWHERE), shards.split)(array, block, numbers)
    return made


_place = jax.jit(_placing, static_argnums=(0, 1, 2, 3))
_place_in_place = jax.jit(_placing, static_argnums=(0, 1, 2, 3), donate_argnums=4)
