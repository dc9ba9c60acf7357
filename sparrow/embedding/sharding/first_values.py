"""First values of a stack, a range of rows at a time: large tables are never held completely."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.embedding.initializers import block_rows, draw_block, is_independent
from sparrow.embedding.sharding.blocks import Array, Reader
from sparrow.embedding.stacking import Stack, stable_hash


def first_values(stack: Stack, key: jax.Array) -> Reader:
    """Return a function that gives rows of the stack as `TableSpec.initial_values` draws them.

    It holds one block of a table whose values are independent; other tables are held completely, one at a time.
    """
    starts = np.array(stack.first_rows)
    sizes = [block_rows(stack.dim) if is_independent(table.values) else table.vocabulary_size for table in stack.tables]

    @functools.lru_cache(maxsize=1)  # rows are requested in ascending order
    def block(number: int, index: int) -> Array:
        table, size = stack.tables[number], sizes[number]
        own = jax.random.fold_in(key, stable_hash(table.name))
        if not is_independent(table.values):
            return np.asarray(table.initial_values(own))
        rows = draw_block(table.values, stack.dim, table.dtype, own, index)
        return np.asarray(rows)[: table.vocabulary_size - index * size]

    def read(first: int, last: int) -> Array:
        made = np.empty((last - first, stack.dim), jnp.dtype(stack.step.dtype))
        row = first
        while row < last:
            number = int(np.searchsorted(starts, row, side="right")) - 1
            index, at = divmod(row - int(starts[number]), sizes[number])
            rows = block(number, index)[at : at + last - row]
            made[row - first : row - first + len(rows)] = rows
            row += len(rows)
        return made

    return read
