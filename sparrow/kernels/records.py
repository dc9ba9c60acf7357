"""Rows in host memory: a row of the table and of its slots side by side in one record.

A record is the table's row, then the rows of the slots with one vector per row, then the numbers of the slots with
one number per row, then zeros up to a multiple of 32 bytes. `swap`, `store` and `read` here call back to Python, for
devices without kernels that reach host memory; `sparrow.kernels.cuda.swap` has the same functions for pinned memory.

Compiled programs know nothing of the records, and steps change them in place. The order of the calls follows from the
cache, which each of them takes.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.experimental import io_callback

from sparrow.kernels.ids.types import Changed
from sparrow.kernels.ids.words import words_of
from sparrow.kernels.types import stand_in

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
        for view, array in zip(self.views(result), arrays, strict=True):
            view[...] = array
        return result

    def views(self, records: npt.NDArray[np.uint8]) -> list[npt.NDArray[Any]]:
        """Return the arrays of ``records``, (n, bytes) uint8, in place."""
        made = [records[:, part.offset : part.offset + part.bytes].view(jnp.dtype(part.dtype)) for part in self.parts]
        return [view if part.numbers else view[:, 0] for part, view in zip(self.parts, made, strict=True)]

    def unpacked(self, records: npt.NDArray[np.uint8]) -> list[npt.NDArray[Any]]:
        return [np.ascontiguousarray(view) for view in self.views(records)]


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


class Memory:
    """Records in plain memory, zeros at first.

    Attributes:
      array: (bytes,) uint8.
      address: (2,) uint32, where it begins: an operand of `swap`, `read` and `store`.
    """

    def __init__(self, size: int) -> None:
        self.array: npt.NDArray[np.uint8] = np.zeros(size, np.uint8)
        self.address = words_of(np.array([self.array.ctypes.data], np.uint64))[0]
        _memories[self.address.tobytes()] = self


_memories: weakref.WeakValueDictionary[bytes, Memory] = weakref.WeakValueDictionary()


def swap(
    held: Layout,
    arrays: Sequence[jax.Array],
    address: jax.Array,
    records: int,
    fresh: Changed,
    gone: Changed,
) -> list[jax.Array]:
    """Return the cache after its rows ``gone`` are stored to their records, and ``fresh`` ones read from theirs.

    Args:
      held: the layout of the records.
      arrays: the cache: a table and its slots.
      address: (2,) uint32, of the first record; 0: nothing moves.
      records: their number; others are left alone.
      fresh: slots of the cache, from an `assign` in which no id came back; their ids are numbers of records.
      gone: likewise.
    """

    def moved(address: Any, away: Any, old: Any, new: Any) -> Any:
        return tuple(_taken(held, _put(held, _records(held, address, records), away, old), np.asarray(new)))

    shapes = tuple(stand_in((len(fresh.rows), *array.shape[1:]), array.dtype) for array in arrays)
    old, slots = tuple(array.at[gone.rows].get(mode="clip") for array in arrays), arrays[0].shape[0]
    numbers = [record_numbers(changed, records, slots) for changed in (gone, fresh)]
    new = io_callback(moved, shapes, address, numbers[0], old, numbers[1])
    return [array.at[fresh.rows].set(rows, mode="drop") for array, rows in zip(arrays, new, strict=True)]


def store(held: Layout, arrays: Sequence[jax.Array], address: jax.Array, records: int, gone: Changed) -> jax.Array:
    """Store the rows ``gone`` of a cache to their records; the result is there when they are stored."""

    def stored(address: Any, away: Any, old: Any) -> Any:
        _put(held, _records(held, address, records), away, old)
        return np.zeros(1, np.int32)

    done = stand_in((1,), jnp.int32)
    old = tuple(array.at[gone.rows].get(mode="clip") for array in arrays)
    made: jax.Array = io_callback(stored, done, address, record_numbers(gone, records, arrays[0].shape[0]), old)
    return made


def read(
    held: Layout, table: jax.Array, address: jax.Array, records: int, rows: jax.Array, slots: jax.Array
) -> jax.Array:
    """(N, dim): rows of a table: from the cache at ``slots``, or, where those are past its end, from the records."""

    def taken(address: Any, rows: Any, _: Any) -> Any:
        return _taken(held, _records(held, address, records), np.asarray(rows))[0]

    shape = stand_in((len(rows), table.shape[1]), table.dtype)
    here = slots < table.shape[0]
    far = io_callback(taken, shape, address, jnp.where(here | (rows < 0), records, rows), table[:1])
    return jnp.where(here[:, None], table.at[slots].get(mode="clip"), far)


def record_numbers(changed: Changed, records: int, slots: int) -> jax.Array:
    """Return numbers of records; ``records`` past the last one, and for rows past the last of ``slots``."""
    there = (jnp.arange(len(changed.rows)) < changed.ends[-1]) & (changed.rows < slots)
    return jnp.where(there, changed.ids[:, 0].astype(jnp.int32), records)


def _records(held: Layout, address: Any, records: int) -> npt.NDArray[np.uint8]:
    memory = _memories.get(np.asarray(address, np.uint32).tobytes())
    return np.zeros((0, held.bytes), np.uint8) if memory is None else memory.array.reshape(records, held.bytes)


def _put(held: Layout, host: npt.NDArray[np.uint8], numbers: Any, rows: Any) -> npt.NDArray[np.uint8]:
    """Return the records ``host`` after those with ``numbers`` have taken the values of ``rows``."""
    there = np.flatnonzero(np.asarray(numbers) < len(host))
    host[np.asarray(numbers)[there]] = held.packed([np.asarray(part)[there] for part in rows])
    return host


def _taken(held: Layout, host: npt.NDArray[np.uint8], numbers: Any) -> list[npt.NDArray[Any]]:
    there = numbers < len(host)
    made = np.zeros((len(numbers), held.bytes), np.uint8)
    made[there] = host[numbers[there]]
    return held.unpacked(made)
