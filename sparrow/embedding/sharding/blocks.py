"""Between shards and logical order, block by block: first values, views and checkpoints. One all-to-all per block.

Local rows [a, b) of all shards are the stack's rows [a * n, b * n). A block of m * n local rows becomes m * n rows in
logical order on each device, device d holding the d-th part of the block. No device ever holds more than a block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.embedding.sharding.layout import Layout, turn
from sparrow.embedding.sharding.shards import EVERYWHERE, Shards

Array = npt.NDArray[Any]
Reader = Callable[[int, int], Array]
"""Gives rows [first, last) of a stack; rows past the end of the stack may be anything."""

BLOCK_BYTES: Final = 1 << 24
"""The size of a block on each device, if one local row for each pair of shards does not take more."""


class Block(NamedTuple):
    """Rows of a stack: local rows ``first`` to ``first + size * n`` of every shard."""

    first: int
    size: int  # local rows of each shard that go to each device


def blocks(layout: Layout, row_bytes: int, block_bytes: int = BLOCK_BYTES) -> list[Block]:
    """All rows of a stack, in blocks of about ``block_bytes`` on each device."""
    largest = max(1, block_bytes // max(1, row_bytes * layout.shards))
    groups = layout.local_rows // layout.shards
    return [Block(first * layout.shards, min(largest, groups - first)) for first in range(0, groups, largest)]


def rows_of_block(layout: Layout, block: Block, shard: int) -> tuple[int, int]:
    """Return the first and last row of a block that ``shard`` holds, in logical order; some may be past the end."""
    each = block.size * layout.shards
    first = block.first * layout.shards + shard * each
    return first, first + each


def in_order(shards: Shards, layout: Layout, array: jax.Array, block: Block) -> jax.Array:
    """Return a block of a stack's array in logical order, split over the shards as by `rows_of_block`."""
    made: jax.Array = _in_order(shards, layout, block.size, array, block.first)
    return made


def placed(
    shards: Shards,
    layout: Layout,
    array: jax.Array,
    read: Reader,
    span: tuple[int, int],
    *,
    give_away: bool = False,
    block_bytes: int = BLOCK_BYTES,
) -> jax.Array:
    """Return a stack's array with rows ``span`` replaced by what ``read`` gives, block by block.

    Each process reads only what its devices hold of each block in logical order. All processes call this together.

    Args:
      shards: the mesh.
      layout: the layout of the stack.
      array: the stack's array, split over the shards.
      read: gives rows of the stack, as NumPy arrays.
      span: first and last row.
      give_away: whether ``array`` may be written in place.
      block_bytes: as for `blocks`.
    """
    row_bytes = array.dtype.itemsize * int(np.prod(array.shape[1:]))
    for block in blocks(layout, row_bytes, block_bytes):
        first, _ = rows_of_block(layout, block, 0)
        _, last = rows_of_block(layout, block, layout.shards - 1)
        if first >= span[1] or last <= span[0]:
            continue
        pieces = [_padded(read, rows_of_block(layout, block, shard), span, array) for shard in shards.local]
        rows = shards.put_parts(np.concatenate(pieces))
        place = _place_in_place if give_away else _place
        array = place(shards, layout, block.size, array, rows, block.first, *span)
        give_away = True  # from the first block on, the array is this function's own
    return array


def pieces(
    shards: Shards, layout: Layout, array: jax.Array, span: tuple[int, int], block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[int, Array]]:
    """Rows ``span`` of a stack in logical order, as far as this process's devices get them: first row, and rows.

    Every row comes from one process only. All processes call this together, and take the same number of blocks.
    """
    row_bytes = array.dtype.itemsize * int(np.prod(array.shape[1:]))
    for block in blocks(layout, row_bytes, block_bytes):
        first, _ = rows_of_block(layout, block, 0)
        _, last = rows_of_block(layout, block, layout.shards - 1)
        if first >= span[1] or last <= span[0]:
            continue
        yield from _mine(layout, in_order(shards, layout, array, block), block, span)


def gathered(shards: Shards, layout: Layout, array: jax.Array, span: tuple[int, int]) -> Array:
    """Rows ``span`` of a stack in logical order, all of them, on the host of every process."""
    made = np.empty((span[1] - span[0], *array.shape[1:]), array.dtype)
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
    shards: Shards, layout: Layout, array: jax.Array, span: tuple[int, int], block_bytes: int = BLOCK_BYTES
) -> Iterator[Array]:
    """Rows ``span`` of a stack in logical order, a block at a time, on the host of every process."""
    row_bytes = array.dtype.itemsize * int(np.prod(array.shape[1:]))
    for block in blocks(layout, row_bytes, block_bytes):
        first, _ = rows_of_block(layout, block, 0)
        _, last = rows_of_block(layout, block, layout.shards - 1)
        if first >= span[1] or last <= span[0]:
            continue
        whole = np.asarray(_copied(shards, in_order(shards, layout, array, block)))
        yield whole[max(first, span[0]) - first : min(last, span[1]) - first]


def _mine(layout: Layout, rows: jax.Array, block: Block, span: tuple[int, int]) -> Iterator[tuple[int, Array]]:
    base = block.first * layout.shards
    for shard in rows.addressable_shards:
        if shard.replica_id:
            continue  # a copy on another axis of the mesh
        first = base + (shard.index[0].start or 0)
        low, high = max(first, span[0]), min(first + shard.data.shape[0], span[1])
        if low < high:
            yield low, np.asarray(shard.data)[low - first : high - first]


def _padded(read: Reader, rows: tuple[int, int], span: tuple[int, int], like: jax.Array) -> Array:
    """Return the wanted rows where they lie in ``span``, zeros elsewhere."""
    made = np.zeros((rows[1] - rows[0], *like.shape[1:]), like.dtype)
    low, high = max(rows[0], span[0]), min(rows[1], span[1])
    if low < high:
        made[low - rows[0] : high - rows[0]] = read(low, high)
    return made


@functools.partial(jax.jit, static_argnums=0)
def _copied(shards: Shards, array: jax.Array) -> jax.Array:
    return jax.lax.with_sharding_constraint(array, shards.everywhere)  # type: ignore[no-untyped-call, no-any-return]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _in_order(shards: Shards, layout: Layout, size: int, array: jax.Array, first: int) -> jax.Array:
    n = layout.shards

    def local(part: jax.Array, first: jax.Array) -> jax.Array:
        rows = jax.lax.dynamic_slice_in_dim(part, first, n * size).reshape(n, size, *part.shape[1:])
        rows = shards.swap(rows)  # (shard, size, ...): every shard's rows of `size` blocks of n rows
        number = first + shards.index * size + jnp.arange(size, dtype=jnp.int32)
        owner = (jnp.arange(n, dtype=jnp.int32)[None] + turn(number, n, jnp)[:, None]) % n  # (size, n)
        return rows[owner, jnp.arange(size)[:, None]].reshape(size * n, *part.shape[1:])

    made: jax.Array = shards.each(local, (shards.split, EVERYWHERE), shards.split)(array, jnp.int32(first))
    return made


def _placing(
    shards: Shards, layout: Layout, size: int, array: jax.Array, block: jax.Array, first: int, low: int, high: int
) -> jax.Array:
    n = layout.shards

    def local(part: jax.Array, block: jax.Array, first: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
        number = first + shards.index * size + jnp.arange(size, dtype=jnp.int32)
        rows = block.reshape(size, n, *part.shape[1:])
        place = (jnp.arange(n, dtype=jnp.int32)[:, None] - turn(number, n, jnp)[None]) % n  # (shard, size)
        sent = rows[jnp.arange(size)[None], place]
        new = shards.swap(sent).reshape(n * size, *part.shape[1:])
        at = first + jnp.arange(n * size, dtype=jnp.int32)
        logical = layout.logical(shards.index, at, jnp)
        inside = ((logical >= low) & (logical < high)).reshape(-1, *[1] * (part.ndim - 1))
        old = jax.lax.dynamic_slice_in_dim(part, first, n * size)
        return jax.lax.dynamic_update_slice_in_dim(part, jnp.where(inside, new, old), first, 0)

    specs = (shards.split, shards.split, EVERYWHERE, EVERYWHERE, EVERYWHERE)
    numbers = (jnp.int32(first), jnp.int32(low), jnp.int32(high))
    made: jax.Array = shards.each(local, specs, shards.split)(array, block, *numbers)
    return made


_place = jax.jit(_placing, static_argnums=(0, 1, 2))
_place_in_place = jax.jit(_placing, static_argnums=(0, 1, 2), donate_argnums=3)
