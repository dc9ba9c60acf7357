"""How a parameter of any shape becomes a batch of matrix blocks, each with one factor per side."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Side:
    """The rows, or the columns, of a matrix: how many there are, how they are cut, what the factor is."""

    size: int
    block: int  # the last block of a side is padded with zeros up to this size
    dense: bool  # the factor of a block is (block, block); otherwise its diagonal, (block,)

    @property
    def blocks(self) -> int:
        """Into how many blocks the side is cut."""
        return -(-self.size // self.block)

    def valid(self) -> np.ndarray:
        """How many entries of each block are not padding: ``(blocks,)``."""
        return np.minimum(self.block, self.size - self.block * np.arange(self.blocks))


@dataclasses.dataclass(frozen=True)
class Layout:
    """A parameter seen as ``rows x columns``, cut into a grid of blocks; block (r, c) is number ``r * C + c``.

    A vector is one column. Its column side is a factor of size 1 that stays 1 (marked by ``vector``).
    """

    rows: Side
    columns: Side
    vector: bool

    @property
    def blocks(self) -> int:
        """Blocks in the grid."""
        return self.rows.blocks * self.columns.blocks

    def split(self, array: jax.Array) -> jax.Array:
        """Return the parameter's array as ``(blocks, rows.block, columns.block)``, zero-padded."""
        rows, columns = self.rows, self.columns
        matrix = array.reshape(rows.size, columns.size)
        padding = [(0, side.blocks * side.block - side.size) for side in (rows, columns)]
        grid = jnp.pad(matrix, padding).reshape(rows.blocks, rows.block, columns.blocks, columns.block)
        return grid.transpose(0, 2, 1, 3).reshape(self.blocks, rows.block, columns.block)

    def join(self, blocks: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Return the inverse of `split`."""
        rows, columns = self.rows, self.columns
        grid = blocks.reshape(rows.blocks, columns.blocks, rows.block, columns.block)
        matrix = grid.transpose(0, 2, 1, 3).reshape(rows.blocks * rows.block, columns.blocks * columns.block)
        return matrix[: rows.size, : columns.size].reshape(shape)

    def valid_rows(self) -> np.ndarray:
        """Rows that are not padding, of every block: ``(blocks,)`` float32."""
        return np.repeat(self.rows.valid(), self.columns.blocks).astype(np.float32)

    def valid_columns(self) -> np.ndarray:
        """Columns that are not padding, of every block: ``(blocks,)`` float32."""
        return np.tile(self.columns.valid(), self.rows.blocks).astype(np.float32)


def merged_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """``shape`` as rows x columns: neighbouring dims are multiplied so that the matrix is as square as can be.

    >>> merged_shape((3, 3, 64, 128)), merged_shape((7,)), merged_shape((1, 7, 1)), merged_shape(())
    ((576, 128), (7, 1), (7, 1), (1, 1))
    """
    dims = [dim for dim in shape if dim != 1]
    if len(dims) < 2:
        return math.prod(dims), 1
    cuts = [(math.prod(dims[:cut]), math.prod(dims[cut:])) for cut in range(1, len(dims))]
    return min(cuts, key=lambda cut: max(cut) / max(min(cut), 1))


def layout_of(shape: tuple[int, ...], block_size: int, max_size_dense: int) -> Layout:
    """Return the layout of a parameter: a side longer than ``max_size_dense`` is one block with a diagonal factor.

    >>> layout = layout_of((1_000_000, 64), block_size=32, max_size_dense=16384)
    >>> layout.rows
    Side(size=1000000, block=1000000, dense=False)
    >>> layout.columns
    Side(size=64, block=32, dense=True)
    """
    rows, columns = merged_shape(shape)
    if columns == 1:
        return Layout(Side(rows, rows, dense=False), Side(1, 1, dense=False), vector=True)

    def side(size: int) -> Side:
        dense = size <= max_size_dense
        return Side(size, min(size, block_size) if dense else size, dense)

    return Layout(side(rows), side(columns), vector=False)
