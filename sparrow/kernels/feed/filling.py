"""The filler: compiled code that writes batches to the buffers that go to the device; NumPy where there is none."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.kernels.feed import plain
from sparrow.kernels.feed.description import COMBINERS, Column, Packed, Rows
from sparrow.kernels.feed.loading import library
from sparrow.kernels.feed.ordering import address


class Filling:
    """How rows of one layout become batches of one layout."""

    def __init__(
        self,
        width: int,
        columns: Sequence[tuple[int, int, bool]],
        stacks: Sequence[Packed],
        copies: Sequence[tuple[int, int, int]],
        slot_words: int,
    ) -> None:
        """Describe a batch.

        Args:
          width: the words of a row.
          columns: of each column of bags, the word of its length, the words of an id with its weight, and whether
            it has weights.
          stacks: the stacks.
          copies: of other columns, the first word in a row, the number of words, and the place in the buffer.
          slot_words: words from one batch of the buffer to the next.
        """
        self.num_columns = len(columns)
        self._held: list[Any] = []
        raw = _stacks(stacks, self._array)
        self._raw = np.array(
            (
                *(width, self._array(columns), len(columns), self._array(raw), len(raw)),
                *(self._array(copies), len(copies), slot_words),
            ),
            np.int64,
        )
        self._at = address(self._raw)

    def _array(self, values: Any) -> int:
        array = np.array(values or [0], np.int64)
        self._held.append(array)
        return int(array.__array_interface__["data"][0])

    def fill(self, library: ctypes.CDLL, batches: Sequence[Sequence[Rows]], buffer: npt.NDArray[np.int32]) -> bool:
        """Write batches to the buffer, one after the other; False: the reference must look at one of them."""
        pieces, count = _pieces(batches)
        done: int = library.sparrow_feed_fill(self._at, address(pieces), ctypes.c_int64(count), address(buffer))
        return bool(done)

    def count(self, library: ctypes.CDLL, batch: Sequence[Rows]) -> tuple[list[int], list[int]]:
        """Return the number of ids in each column of bags, and in its longest bag."""
        pieces, count = _pieces([batch])
        counts = np.empty((2, max(self.num_columns, 1)), np.int64)
        library.sparrow_feed_count(self._at, address(pieces), ctypes.c_int64(count), address(counts))
        found: tuple[list[int], list[int]] = tuple(counts[:, : self.num_columns].tolist())
        return found


class ColumnFilling:
    """How columns become one batch: one for each field, stack after stack."""

    def __init__(self, stacks: Sequence[Packed]) -> None:
        self._stacks, self._held = stacks, list[Any]()
        self._raw = np.array(_stacks(stacks, self._array), np.int64)

    def _array(self, values: Any) -> int:
        self._held.append(np.array(values, np.int64))
        return _address(self._held[-1])

    def fill(self, columns: Sequence[Column], batch: npt.NDArray[np.int32]) -> bool:
        """Write a batch; False: something is wrong with a column."""
        loaded = library()
        if loaded is None:
            return plain.fill_columns(self._stacks, columns, batch)
        given = np.array([_column(column) for column in columns], np.int64)
        done: int = loaded.sparrow_feed_fill_columns(
            address(self._raw), ctypes.c_int64(len(self._stacks)), address(given), address(batch)
        )
        return bool(done)


def _stacks(stacks: Sequence[Packed], array: Callable[[Any], int]) -> list[tuple[int, ...]]:
    """Return the stacks as ``Packed`` of fill.cc; ``array`` keeps the fields alive and returns their address."""
    raw: list[tuple[int, ...]] = []
    for stack in stacks:
        fields = [(*field[:5], COMBINERS.index(field.combiner), *field[6:]) for field in stack.fields]
        raw.append((array(fields), len(fields), *stack[1:]))
    return raw


def _column(column: Column) -> tuple[int, ...]:
    ids, size = column.ids, column.ids.itemsize
    return (
        *(_address(ids), size == 8, ids.strides[0] // size, len(ids)),
        *map(_address, (column.offsets, column.weights, column.there)),
    )


def _pieces(batches: Sequence[Sequence[Rows]]) -> tuple[npt.NDArray[np.int64], int]:
    """Return the rows as ``Piece`` of fill.cc, and their number. The caller keeps the arrays alive."""
    raw: list[int] = []
    for slot, batch in enumerate(batches):
        at = 0
        for rows in batch:
            raw += (
                _address(rows.words),
                _address(rows.order),
                rows.begin,
                rows.size,
                _address(rows.tail),
                _address(rows.starts),
                at,
                slot,
            )
            at += rows.size
    return np.array(raw, np.int64), len(raw) // 8


def _address(array: npt.NDArray[Any] | None) -> int:
    return 0 if array is None else int(array.__array_interface__["data"][0])
