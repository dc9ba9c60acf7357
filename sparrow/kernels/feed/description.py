"""The description of batches that the filler writes: fields, the stacks that they make up, and where ids come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

COMBINERS: Final = ("sum", "mean", "sqrtn")


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


class Column(NamedTuple):
    """The ids of one feature by themselves, instead of in rows.

    Attributes:
      ids: (N,) int32 or int64, of any stride.
      offsets: (bags + 1,) int64, from 0 to N; None: one id per bag, and none in bags behind the last id.
      weights: (N,) float32; None: all 1.
      there: (N,) bool, False where an id is missing; None: none is.
    """

    ids: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64] | None = None
    weights: npt.NDArray[np.float32] | None = None
    there: npt.NDArray[np.bool_] | None = None


class Packed(NamedTuple):
    """The lookups of a stack, or of a group of its features. Places are words of the buffer.

    Attributes:
      fields: its features.
      spare: the row of an id that is ignored.
      examples: in a batch.
      capacity: the number of entries; -1: one for each bag.
      ids, bags, offsets, gains: the places; -1 where there is no such array. Without bags, each field has `places`.
      first: the number of its first bag and entry: single ids, one each, come before them.
      raw: the place of raw 64-bit ids, for dynamic tables; the ``start`` of a field is then the number of its table,
        its ``limit`` 1, and the ``word`` of a single id that of its lower half, behind which the upper one stands.
      follows: whether its bags follow those of the one before, in the same arrays; for columns.
    """

    fields: Sequence[Field]
    spare: int
    examples: int
    capacity: int
    ids: int
    bags: int = -1
    offsets: int = -1
    gains: int = -1
    first: int = 0
    raw: int = -1
    follows: bool = False


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
