"""The filler: compiled code that writes batches to the buffers that go to the device; NumPy where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.kernels.feed import plain
from sparrow.kernels.feed.loading import compiled, library
from sparrow.kernels.feed.plain import COMBINERS, Column, Packed, Rows
from sparrow.kernels.native.host import address


class Filling:
    """How rows of one layout become batches of one layout. Only compiled code knows rows."""

    def __init__(
        self,
        width: int,
        columns: Sequence[tuple[int, int, bool]],
        stacks: Sequence[Packed],
        copies: Sequence[tuple[int, int, int]],
        slot_words: int,
    ) -> None:
        """Describe a batch: columns of bags, stacks, and other columns of a row of ``width`` words.

        ``columns``: the word of the length, the words of an id with its weight, and whether it has weights. ``copies``:
        the first word in a row, the number of words, and the place in the buffer, of ``slot_words`` for each batch.
        """
        self.num_columns, held = len(columns), _Held()
        raw = _stacks(stacks, held)
        of_stacks = width, held.put(columns), len(columns), held.put(raw), len(raw)
        self._raw = np.array((*of_stacks, held.put(copies), len(copies), slot_words), np.int64)
        self._held = held

    def fill(self, batches: Sequence[Sequence[Rows]], buffer: npt.NDArray[np.int32]) -> bool:
        """Write batches to the buffer, one after the other; False: the reference must look at one of them."""
        pieces, count = _pieces(batches)
        return bool(compiled().sparrow_feed_fill(self._raw, pieces, count, buffer))

    def count(self, batch: Sequence[Rows]) -> tuple[list[int], list[int]]:
        """Return the number of ids in each column of bags, and in its longest bag."""
        pieces, count = _pieces([batch])
        counts = np.empty((2, max(self.num_columns, 1)), np.int64)
        compiled().sparrow_feed_count(self._raw, pieces, count, counts)
        found: tuple[list[int], list[int]] = tuple(counts[:, : self.num_columns].tolist())
        return found


class ColumnFilling:
    """How columns become one batch: one for each field, stack after stack."""

    def __init__(self, stacks: Sequence[Packed]) -> None:
        self._stacks, self._held = stacks, _Held()
        self._raw = np.array(_stacks(stacks, self._held), np.int64)

    def fill(self, columns: Sequence[Column], batch: npt.NDArray[np.int32]) -> bool:
        loaded = library()
        if loaded is None:
            return plain.fill_columns(self._stacks, columns, batch)
        given = np.array([_column(column) for column in columns], np.int64)
        return bool(loaded.sparrow_feed_fill_columns(self._raw, len(self._stacks), given, batch))


class _Held(list[npt.NDArray[np.int64]]):
    """Arrays that compiled code is given the addresses of."""

    def put(self, values: Any) -> int:
        """Keep the values; return their address."""
        self.append(np.array(values or [0], np.int64))
        return address(self[-1])


def _stacks(stacks: Sequence[Packed], held: _Held) -> list[tuple[int, ...]]:
    """Return the stacks as ``Packed`` of fill.cc; their fields are held."""
    raw: list[tuple[int, ...]] = []
    for stack in stacks:
        fields = [(*field[:5], COMBINERS.index(field.combiner), *field[6:]) for field in stack.fields]
        raw.append((held.put(fields), len(fields), *stack[1:]))
    return raw


def _column(column: Column) -> tuple[int, ...]:
    ids, size = column.ids, column.ids.itemsize
    return (
        *(address(ids), size == 8, ids.strides[0] // size, len(ids)),
        *map(address, (column.offsets, column.weights, column.there)),
    )


def _pieces(batches: Sequence[Sequence[Rows]]) -> tuple[npt.NDArray[np.int64], int]:
    """Return the rows as ``Piece`` of fill.cc, and their number. The caller keeps the arrays alive."""
    raw: list[int] = []
    for slot, batch in enumerate(batches):
        at = 0
        for rows in batch:
            raw += address(rows.words), address(rows.order), rows.begin, rows.size
            raw += address(rows.tail), address(rows.starts), at, slot
            at += rows.size
    return np.array(raw, np.int64), len(raw) // 8
