"""First values of a stack, a range of rows at a time: large tables are never held completely."""

from __future__ import annotations

import functools
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.embedding.initializers import BLOCK_VALUES, TablePlace, block_rows, draw_all, is_independent
from sparrow.embedding.sharding.blocks import Array, Reader
from sparrow.embedding.specs import TableSpec
from sparrow.embedding.stacking import Stack, stable_hash

AT_ONCE: Final = 1 << 24
"""Values that are drawn and held at a time, at most: one program draws all blocks of them."""


def first_values(stack: Stack, key: jax.Array) -> Reader:
    """Return a function that gives rows of the stack as `TableSpec.initial_values` draws them.

    It holds `AT_ONCE` values of a table whose values are independent; other tables are held completely, one at a time.
    """
    starts = np.array(stack.first_rows)
    blocks = [_blocks(table) for table in stack.tables]
    sizes = [
        count * block_rows(stack.dim) if is_independent(table.values) else table.vocabulary_size
        for count, table in zip(blocks, stack.tables, strict=True)
    ]

    @functools.lru_cache(maxsize=1)  # rows are requested in ascending order
    def part(number: int, index: int) -> Array:
        table, size = stack.tables[number], sizes[number]
        own = jax.random.fold_in(key, stable_hash(table.name))
        if not is_independent(table.values):
            return np.asarray(table.initial_values(own))
        place = TablePlace(table.values, 0, size)
        rows = draw_all((size, stack.dim), table.dtype, own[None], [place], index * blocks[number])
        return np.asarray(rows)[: table.vocabulary_size - index * size]

    def read(first: int, last: int) -> Array:
        found, row = [np.empty((0, stack.dim), jnp.dtype(stack.step.dtype))], first
        while row < last:
            number = int(np.searchsorted(starts, row, side="right")) - 1
            index, at = divmod(row - int(starts[number]), sizes[number])
            found.append(part(number, index)[at : at + last - row])
            row += len(found[-1])
        return found[1] if len(found) == 2 else np.concatenate(found)

    return read


def _blocks(table: TableSpec) -> int:
    """Return the blocks to draw at a time: a power of two, so that tables of all sizes share few programs."""
    needed = -(-table.vocabulary_size // block_rows(table.embedding_dim))
    return min(1 << (needed - 1).bit_length(), AT_ONCE // BLOCK_VALUES)
