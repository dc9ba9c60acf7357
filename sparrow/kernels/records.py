"""Rows in host memory: a row of the table and of its slots side by side in one record.

A record is the table's row, then the rows of the slots with one vector a row, then the numbers of the slots with one
number a row, then zeros up to a multiple of 32 bytes. `swap` here is the reference; `sparrow.kernels.cuda.swap` does it
with records in pinned host memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.kernels.ids.types import Changed

ALIGNMENT = 32  # bytes: the least that a GPU reads


class Part(NamedTuple):
    """One array: the numbers of a row (0: one number, not a vector), their type, its place in the record in bytes."""

    numbers: int
    dtype: str
    offset: int

    @property
    def bytes(self) -> int:
        """The bytes of a row."""
        return max(1, self.numbers) * int(jnp.dtype(self.dtype).itemsize)


class Layout(NamedTuple):
    """The parts of a record in the order of the arrays, and its bytes."""

    parts: tuple[Part, ...]
    bytes: int

    def packed(self, arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.uint8]:
        """(n, bytes) uint8: the rows of ``arrays`` as records."""
        result = np.zeros((len(arrays[0]), self.bytes), np.uint8)
        for part, array in zip(self.parts, arrays, strict=True):
            rows = np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8)
            result[:, part.offset : part.offset + part.bytes] = rows
        return result

    def unpacked(self, records: npt.NDArray[np.uint8]) -> list[npt.NDArray[Any]]:
        """Return the arrays of ``records``, (n, bytes) uint8."""
        result = []
        for part in self.parts:
            rows = np.ascontiguousarray(records[:, part.offset : part.offset + part.bytes])
            shape = (len(records), part.numbers) if part.numbers else (len(records),)
            result.append(rows.view(jnp.dtype(part.dtype)).reshape(shape))
        return result


def layout(arrays: Sequence[Any]) -> Layout:
    """Return the layout of the records of ``arrays``: a table and its slots, or their shapes.

    >>> layout([np.zeros((5, 16), np.float32), np.zeros(5, np.float32)]).bytes
    96
    """
    offsets, end = {}, 0
    for vectors in (True, False):
        for number, array in enumerate(arrays):
            if (array.ndim == 2) == vectors:
                offsets[number] = end
                end += (array.shape[1] if vectors else 1) * jnp.dtype(array.dtype).itemsize
    parts = [
        Part(array.shape[1] if array.ndim == 2 else 0, jnp.dtype(array.dtype).name, offsets[number])
        for number, array in enumerate(arrays)
    ]
    return Layout(tuple(parts), -(-end // ALIGNMENT) * ALIGNMENT)


def swap(
    held: Layout, arrays: Sequence[jax.Array], host: jax.Array, fresh: Changed, gone: Changed
) -> tuple[list[jax.Array], jax.Array]:
    """Store the rows ``gone`` of a cache to their records, then read the rows ``fresh`` from theirs.

    Args:
      held: the layout of the records.
      arrays: the cache: a table and its slots.
      host: (rows, bytes) uint8, the records.
      fresh: slots of the cache; their ids are numbers of records.
      gone: likewise.
    """
    count = arrays[0].shape[0]
    away = jnp.where((gone.rows >= 0) & (gone.rows < count), gone.ids[:, 0].astype(jnp.int32), host.shape[0])
    new = host.at[fresh.ids[:, 0].astype(jnp.int32)].get(mode="clip")
    result = []
    for part, array in zip(held.parts, arrays, strict=True):
        place = slice(part.offset, part.offset + part.bytes)
        old = jax.lax.bitcast_convert_type(array.at[gone.rows].get(mode="clip"), jnp.uint8).reshape(len(away), -1)
        host = host.at[away, place].set(old, mode="drop")
        words = new[:, place].reshape(len(new), max(1, part.numbers), -1)
        rows = jax.lax.bitcast_convert_type(words, array.dtype)
        result.append(array.at[fresh.rows].set(rows if part.numbers else rows[:, 0], mode="drop"))
    return result, host
