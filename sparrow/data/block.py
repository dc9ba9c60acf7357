"""`Block`: converted rows in a pipeline, all values of a row adjacent.

A row is a few dozen 32-bit words: ids, numbers, labels. Held row by row, in one matrix, rows are shuffled, cut and
joined by moving complete rows, and packing reads each of them once. `Block.to_batch` returns the columns, as views.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.data.batch import PARTS, Batch, Values, cut, join, take
from sparrow.embedding import Ragged
from sparrow.kernels import feed

Name = tuple[str, str]
"""A column: the part of the batch that it is in, and its name."""


class Place(NamedTuple):
    """The place of a column in a row: its first word, the type of its values, and their number; None: a single one."""

    word: int
    dtype: np.dtype[Any]
    width: int | None


@dataclasses.dataclass(frozen=True)
class Layout:
    """The places of the columns in a row, its number of words, and the number of words in use."""

    places: Mapping[Name, Place]
    width: int
    used: int

    @classmethod
    def of(cls, batch: Batch) -> Layout:
        """Return the layout of rows as in ``batch``. Ragged columns and values of other types have no place."""
        wide: list[tuple[Name, npt.NDArray[Any]]] = []
        narrow: list[tuple[Name, npt.NDArray[Any]]] = []
        for part in PARTS:
            for name, values in getattr(batch, part).items():
                if isinstance(values, np.ndarray) and values.ndim in (1, 2) and values.dtype.itemsize in (4, 8):
                    (wide if values.dtype.itemsize == 8 else narrow).append(((part, name), values))
        places, word = {}, 0
        for column, values in wide + narrow:  # 64-bit values first, where they are aligned
            width = None if values.ndim == 1 else values.shape[1]
            places[column] = Place(word, values.dtype, width)
            word += (width or 1) * values.dtype.itemsize // 4 if width != 0 else 0
        return cls(places, word + word % 2 if wide else word, word)


@dataclasses.dataclass(frozen=True)
class Block:
    """Rows.

    Attributes:
      layout: the layout of ``words``.
      words: (rows, layout.width) int32.
      others: the columns that have no place in the layout, ragged ones most of all.
      rows: the number of rows.
    """

    layout: Layout
    words: npt.NDArray[np.int32]
    others: Mapping[Name, Values]
    rows: int

    @classmethod
    def of(cls, batch: Batch) -> Block:
        """Return the rows of a batch."""
        layout, rows = Layout.of(batch), len(batch)
        words = np.zeros((rows, layout.width), np.int32)
        others = {}
        for part in PARTS:
            for name, values in getattr(batch, part).items():
                if (place := layout.places.get((part, name))) is not None:
                    _view(words, place)[...] = values
                else:
                    others[part, name] = values
        return cls(layout, words, others, rows)

    def __len__(self) -> int:
        return self.rows

    @functools.cached_property
    def nbytes(self) -> int:
        """The bytes of memory."""
        return int(self.words.nbytes + sum(map(_nbytes, self.others.values())))

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> Block:
        """Return the given rows, in their order."""
        words = feed.take_rows(self.words, rows.astype(np.int64, copy=False))
        if words is None:
            words = np.take(self.words, rows, axis=0)
        return Block(self.layout, words, {name: take(v, rows) for name, v in self.others.items()}, len(rows))

    def cut(self, start: int, stop: int) -> Block:
        """Return the rows ``start`` to ``stop``, without a copy where possible."""
        others = {name: cut(values, start, stop) for name, values in self.others.items()}
        return Block(self.layout, self.words[start:stop], others, stop - start)

    def column(self, name: Name) -> npt.NDArray[Any]:
        """Return a column that has a place in the layout, as a view."""
        return _view(self.words, self.layout.places[name])

    def to_batch(self) -> Batch:
        """Return the columns."""
        batch = Batch()
        for (part, name), place in self.layout.places.items():
            getattr(batch, part)[name] = _view(self.words, place)
        for (part, name), values in self.others.items():
            getattr(batch, part)[name] = values
        return batch


def concatenate(blocks: Sequence[Block]) -> Block:
    """Return all rows of ``blocks``, which have the same columns."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    others = {name: join([block.others[name] for block in blocks]) for name in first.others}
    rows = sum(block.rows for block in blocks)
    return Block(first.layout, np.concatenate([block.words for block in blocks]), others, rows)


def _view(words: npt.NDArray[np.int32], place: Place) -> npt.NDArray[Any]:
    """Return a column of a matrix of words."""
    if place.dtype.itemsize == 4 and place.width is None:
        return words[:, place.word].view(place.dtype)
    span = (place.width or (0 if place.width == 0 else 1)) * place.dtype.itemsize // 4
    view = words[:, place.word : place.word + span].view(place.dtype)
    return view[:, 0] if place.width is None else view


def _nbytes(values: Values) -> int:
    if isinstance(values, Ragged):
        weights = 0 if values.weights is None else values.weights.nbytes
        return int(values.values.nbytes + values.offsets.nbytes + weights)
    return int(values.nbytes)
