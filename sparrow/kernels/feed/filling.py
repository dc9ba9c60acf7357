"""Calling the compiled code that writes batches to the buffers that go to the device."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.kernels.feed.ordering import address
from sparrow.kernels.feed.packing import COMBINERS


class Field(NamedTuple):
    """A feature of a stack.

    Attributes:
      word: the word of its id in a row, or of the number of its ids.
      bag: the number of its column among the columns of bags; -1: it holds one id.
      start: the first row of its table in the stack.
      limit: rows of its table.
      ignores: whether ids outside the table are ignored; if not, they are an error.
      combiner: one of `COMBINERS`.
      places: the places of its ids in every example; 0: as many as it has.
      there: of a single raw id, the number of the row's bit that is set where there is one.
    """

    word: int
    bag: int
    start: int
    limit: int
    ignores: bool
    combiner: str
    places: int = 0
    there: int = 0


class Packed(NamedTuple):
    """The lookups of a stack. Places are words of the buffer.

    Attributes:
      fields: its features.
      spare: the row of an id that is ignored.
      examples: in a batch.
      room: the number of entries; -1: one for each bag.
      ids, bags, offsets, gains: the places; -1 where there is no such array. Without bags, each field has `places`.
      first: the number of its first bag and entry: single ids, one each, come before them.
      raw: the place of raw 64-bit ids, for dynamic tables; the ``start`` of a field is then the number of its table,
        its ``limit`` 1, and the ``word`` of a single id that of its lower half, behind which the upper one stands.
    """

    fields: Sequence[Field]
    spare: int
    examples: int
    room: int
    ids: int
    bags: int = -1
    offsets: int = -1
    gains: int = -1
    first: int = 0
    raw: int = -1


class Rows(NamedTuple):
    """Rows of a block that go to a batch.

    Attributes:
      words: (rows, width).
      order: the rows to take; None: ``begin`` and the following.
      begin, size: the part of ``order``, or of the rows.
      tail, starts: the bags of all rows.
    """

    words: npt.NDArray[np.int32]
    order: npt.NDArray[np.int64] | None
    begin: int
    size: int
    tail: npt.NDArray[np.int32] | None
    starts: npt.NDArray[np.int64] | None


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
        raw = []
        for stack in stacks:
            fields = [(*field[:5], COMBINERS.index(field.combiner), *field[6:]) for field in stack.fields]
            raw.append((self._array(fields), len(fields), *stack[1:]))
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
