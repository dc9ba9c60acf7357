"""`BlockLayout`: the places of the columns in a row of words."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.data.batch import PARTS, Batch
from sparrow.embedding import Ragged

LINE: Final = 16
"""Words in a line of the processor's cache."""
RAW_WIDTH: Final = 3
"""The numbers of a raw id in a batch: two halves, and whether there is one."""
Name = tuple[str, str]
"""A column: the part of the batch that it is in, and its name."""


class Place(NamedTuple):
    """The place of a column in a row.

    Attributes:
      word: its first word.
      dtype: the type of its values.
      width: the number of values; None: a single one.
      there: of raw ids, which have two words each, the number of the bit that is set where there is one, counted from
        the row's first bit on; None: other values.
    """

    word: int
    dtype: np.dtype[Any]
    width: int | None
    there: int | None = None

    def get(self, words: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        """Return the column in a matrix of rows; a view, but for raw ids."""
        if self.there is None:
            return self.view(words)
        bits = words[:, self.there // 32].view(np.uint32) >> np.uint32(self.there % 32)
        halves = words[:, self.word : self.word + 2]
        return np.concatenate([halves, (bits & np.uint32(1)).astype(np.int32)[:, None]], axis=1)

    def put(self, words: npt.NDArray[np.int32], values: npt.NDArray[Any]) -> None:
        if self.there is None:
            self.view(words)[...] = values
            return
        words[:, self.word : self.word + 2] = values[:, :2]
        bits, bit = words[:, self.there // 32].view(np.uint32), np.uint32(1 << self.there % 32)
        bits[...] = (bits & ~bit) | np.where(values[:, 2] != 0, bit, np.uint32(0))

    def view(self, words: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        """Return a column that has no raw ids as a view of a matrix of rows."""
        if self.dtype.itemsize == 4 and self.width is None:
            return words[:, self.word].view(self.dtype)
        span = (self.width or (0 if self.width == 0 else 1)) * self.dtype.itemsize // 4
        view = words[:, self.word : self.word + span].view(self.dtype)
        return view[:, 0] if self.width is None else view


class Bag(NamedTuple):
    """A column of bags: ``word`` of a row holds the number of its ids; ``is_wide``: ids have 64 bits."""

    word: int
    is_weighted: bool
    is_wide: bool = False

    @property
    def size(self) -> int:
        """The words of an id with its weight in the tail of a row."""
        return 1 + self.is_weighted + self.is_wide


@dataclasses.dataclass(frozen=True)
class BlockLayout:
    """The places of the columns in a row.

    Attributes:
      places: the places of columns with a fixed number of values.
      bags: the columns of bags, in the order in which their ids follow each other in a row's tail.
      width: the number of words.
    """

    places: Mapping[Name, Place]
    bags: Mapping[Name, Bag]
    width: int

    @classmethod
    def of(cls, batch: Batch, bags: Collection[Name] | None = None) -> BlockLayout:
        """Return the layout of rows as in ``batch``. Columns of other types than 32 and 64 bits have no place.

        ``bags``: the ragged columns whose ids are in the tails; None: all that hold ids.
        """
        raw: list[Name] = []
        wide: list[tuple[Name, npt.NDArray[Any]]] = []
        narrow: list[tuple[Name, npt.NDArray[Any]]] = []
        ragged: dict[Name, Ragged] = {}
        for part in PARTS:
            for name, values in getattr(batch, part).items():
                column = part, name
                if isinstance(values, Ragged):
                    own = values.values
                    holds_ids = part == "ids" and own.dtype in (np.int32, np.int64) and own.ndim == 1
                    if holds_ids and (bags is None or column in bags):
                        ragged[column] = values
                elif isinstance(values, np.ndarray) and values.ndim in (1, 2) and values.dtype.itemsize in (4, 8):
                    if part == "ids" and values.shape[1:] == (RAW_WIDTH,):
                        raw.append(column)
                        continue
                    (wide if values.dtype.itemsize == 8 else narrow).append((column, values))
        places, word = {}, 0
        for column, values in wide + narrow:  # 64-bit values first, where they are aligned
            width = None if values.ndim == 1 else values.shape[1]
            places[column] = Place(word, values.dtype, width)
            word += (width or 1) * values.dtype.itemsize // 4 if width != 0 else 0
        bits = 32 * (word + 2 * len(raw))
        for i, column in enumerate(raw):
            places[column] = Place(word + 2 * i, np.dtype(np.int32), RAW_WIDTH, bits + i)
        word += 2 * len(raw) + -(-len(raw) // 32)
        in_tail = {
            column: Bag(word + i, values.weights is not None, values.values.dtype == np.int64)
            for i, (column, values) in enumerate(ragged.items())
        }
        word += len(in_tail)
        return cls(places, in_tail, padded(word + word % 2 if wide else word))


def padded(words: int) -> int:
    """Return the words from one row to the next: whole lines of the cache, or fours, which add a quarter at most.

    >>> [padded(words) for words in (3, 14, 27, 34)]
    [3, 16, 32, 36]
    """
    sizes = (-(-words // unit) * unit for unit in (LINE, 4, 1))
    return next(size for size in sizes if size * 4 <= words * 5)
