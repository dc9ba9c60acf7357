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
        return -(-self.size // self.block)

    def valid(self) -> np.ndarray:
        """Return the number of entries of each block that are not padding: ``(blocks,)``."""
        return np.minimum(self.block, self.size - self.block * np.arange(self.blocks))


@dataclasses.dataclass(frozen=True)
class MatrixLayout:
    """A parameter seen as ``rows x columns``, cut into a grid of blocks; block (r, c) is number ``r * C + c``.

    A vector is one column. Its column side is a factor of size 1 that stays 1 (marked by ``vector``).
    A scanned parameter is a stack of such matrices: the grids of its ``layers`` follow one another. ``padding`` empty
    blocks come last.
    """

    rows: Side
    columns: Side
    vector: bool
    layers: int = 1
    padding: int = 0

    @property
    def blocks(self) -> int:
        """Blocks of all layers, and the empty ones."""
        return self.layers * self.rows.blocks * self.columns.blocks + self.padding

    def split(self, array: jax.Array) -> jax.Array:
        """Return the parameter's array as ``(blocks, rows.block, columns.block)``, zero-padded."""
        rows, columns = self.rows, self.columns
        matrices = array.reshape(self.layers, rows.size, columns.size)
        padding = [(0, 0), *((0, side.blocks * side.block - side.size) for side in (rows, columns))]
        grids = jnp.pad(matrices, padding).reshape(self.layers, rows.blocks, rows.block, columns.blocks, columns.block)
        blocks = grids.transpose(0, 1, 3, 2, 4).reshape(self.blocks - self.padding, rows.block, columns.block)
        return jnp.pad(blocks, [(0, self.padding), (0, 0), (0, 0)]) if self.padding else blocks

    def join(self, blocks: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        rows, columns = self.rows, self.columns
        blocks = blocks[: self.blocks - self.padding]
        grids = blocks.reshape(self.layers, rows.blocks, columns.blocks, rows.block, columns.block)
        matrices = grids.transpose(0, 1, 3, 2, 4).reshape(
            self.layers, rows.blocks * rows.block, columns.blocks * columns.block
        )
        return matrices[:, : rows.size, : columns.size].reshape(shape)

    def valid_rows(self) -> np.ndarray:
        """Rows that are not padding, of every block: ``(blocks,)`` float32."""
        return self._of_all_layers(np.repeat(self.rows.valid(), self.columns.blocks))

    def valid_columns(self) -> np.ndarray:
        """Columns that are not padding, of every block: ``(blocks,)`` float32."""
        return self._of_all_layers(np.tile(self.columns.valid(), self.rows.blocks))

    def _of_all_layers(self, valid: np.ndarray) -> np.ndarray:
        return np.pad(np.tile(valid, self.layers), (0, self.padding)).astype(np.float32)


def merged_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """``shape`` as rows x columns: neighboring dims are multiplied so that the matrix is as square as can be.

    >>> merged_shape((3, 3, 64, 128)), merged_shape((7,)), merged_shape((1, 7, 1)), merged_shape(())
    ((576, 128), (7, 1), (7, 1), (1, 1))
    """
    dims = [dim for dim in shape if dim != 1]
    if len(dims) < 2:
        return math.prod(dims), 1
    cuts = [(math.prod(dims[:cut]), math.prod(dims[cut:])) for cut in range(1, len(dims))]
    return min(cuts, key=lambda cut: max(cut) / max(min(cut), 1))


def layout_of(
    shape: tuple[int, ...], block_size: int, max_size_dense: int, *, scanned: bool = False, multiple_of: int = 1
) -> MatrixLayout:
    """Return the layout of a parameter: a side longer than ``max_size_dense`` is one block with a diagonal factor.

    The first axis of a ``scanned`` parameter counts layers. Empty blocks fill up to a multiple of ``multiple_of``.

    >>> layout = layout_of((1_000_000, 64), block_size=32, max_size_dense=16384)
    >>> layout.rows
    Side(size=1000000, block=1000000, dense=False)
    >>> layout.columns
    Side(size=64, block=32, dense=True)
    >>> layout_of((3, 8, 8), 256, 16384, scanned=True, multiple_of=2).blocks
    4
    """
    layers, shape = (shape[0], shape[1:]) if scanned else (1, shape)
    rows, columns = merged_shape(shape)

    def side(size: int) -> Side:
        dense = size <= max_size_dense
        return Side(size, min(size, block_size) if dense else size, dense)

    vector = Side(rows, rows, dense=False), Side(1, 1, dense=False)
    sides = vector if columns == 1 else (side(rows), side(columns))
    padding = -(layers * sides[0].blocks * sides[1].blocks) % multiple_of
    return MatrixLayout(*sides, vector=columns == 1, layers=layers, padding=padding)
