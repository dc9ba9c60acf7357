"""`Block`: converted rows in a pipeline, all values of a row adjacent.

A row is a few dozen 32-bit words: ids, numbers, labels, and the lengths of its bags, whose ids follow each other in the
row's tail. Shuffling gives the rows an order and moves nothing; packing reads them in that order, each of them once.
`Block.to_batch` returns the columns.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.data.batch import PARTS, Batch, Values, cut, join, nothing_like, take
from sparrow.data.layout import Bag, BlockLayout, Name
from sparrow.data.values import offsets_of, places_of
from sparrow.embedding import Ragged
from sparrow.kernels import feed
from sparrow.kernels.feed import Tail


@dataclasses.dataclass(frozen=True)
class Block:
    """Rows.

    Attributes:
      layout: the layout of ``words``.
      words: (rows, layout.width) int32.
      tail: the bags of the rows; None where the layout has none.
      others: the columns that have no place in the layout.
      order: the rows that the block consists of, in this order; None: all of ``words``.
      padding: the number of rows at the end that hold nothing, and fill a short batch.
    """

    layout: BlockLayout
    words: npt.NDArray[np.int32]
    tail: Tail | None = None
    others: Mapping[Name, Values] = dataclasses.field(default_factory=dict)
    order: npt.NDArray[np.int64] | None = None
    padding: int = 0

    @classmethod
    def of(cls, batch: Batch, layout: BlockLayout | None = None) -> Block:
        """Return the rows of a batch; ``layout``: one of such batches."""
        layout, rows = layout or BlockLayout.of(batch), len(batch)
        words = np.zeros((rows, layout.width), np.int32)
        others, bags = {}, {}
        for part in PARTS:
            for name, values in getattr(batch, part).items():
                column = part, name
                if (place := layout.places.get(column)) is not None:
                    place.put(words, values)
                elif (bag := layout.bags.get(column)) is not None:
                    words[:, bag.word] = np.diff(values.offsets)
                    bags[column] = values
                else:
                    others[column] = values
        tail = _tail_of([bags[column] for column in layout.bags], rows) if layout.bags else None
        return cls(layout, words, tail, others)

    def nothing(self, rows: int) -> Block:
        """Return rows of padding with the columns of this block: no ids, empty bags, zeros."""
        words = np.zeros((rows, self.layout.width), np.int32)
        for (part, _), place in self.layout.places.items():
            if part == "ids" and place.there is None:
                place.view(words)[...] = -1
        tail = None if self.tail is None else Tail(self.tail.words[:0], np.zeros(rows + 1, np.int64))
        others = {name: nothing_like(values, rows) for name, values in self.others.items()}
        return Block(self.layout, words, tail, others, padding=rows)

    def __len__(self) -> int:
        return len(self.words if self.order is None else self.order)

    @functools.cached_property
    def nbytes(self) -> int:
        tail = 0 if self.tail is None else self.tail.words.nbytes + self.tail.starts.nbytes
        return int(self.words.nbytes + tail + sum(map(_nbytes, self.others.values())))

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> Block:
        rows = rows.astype(np.int64, copy=False)
        order = rows if self.order is None else self.order[rows]
        return Block(self.layout, self.words, self.tail, self.others, np.ascontiguousarray(order))

    def cut(self, start: int, stop: int) -> Block:
        if self.order is not None:
            return Block(self.layout, self.words, self.tail, self.others, self.order[start:stop])
        tail = None if self.tail is None else Tail(self.tail.words, self.tail.starts[start : stop + 1])
        others = {name: cut(values, start, stop) for name, values in self.others.items()}
        return Block(self.layout, self.words[start:stop], tail, others)

    def in_order(self) -> Block:
        """Return the same rows, one after the other in memory."""
        if self.order is None:
            return self
        words = np.take(self.words, self.order, axis=0)
        tail = None if self.tail is None else _taken(self.tail, self.order)
        return Block(self.layout, words, tail, {name: take(v, self.order) for name, v in self.others.items()})

    def column(self, name: Name) -> npt.NDArray[Any]:
        """Return a column that has a place in the layout; a view, where the rows are in order."""
        words = self.words if self.order is None else self.words[self.order]
        return self.layout.places[name].get(words)

    def to_batch(self, only: Collection[str] | None = None) -> Batch:
        """Return the columns; ``only``: the ones with these names."""
        rows, batch, bags = self.in_order(), Batch(padding=self.padding), list(self.layout.bags)
        for (part, name), place in self.layout.places.items():
            if only is None or name in only:
                getattr(batch, part)[name] = place.get(rows.words)
        for column in (*bags, *rows.others):
            part, name = column
            if only is not None and name not in only:
                continue
            if column in self.layout.bags:
                assert rows.tail is not None  # there are bags
                up_to = [self.layout.bags[own] for own in bags[: bags.index(column) + 1]]
                getattr(batch, part)[name] = _column_of(rows.words, rows.tail, up_to)
            else:
                getattr(batch, part)[name] = rows.others[column]
        return batch

    @property
    def rows(self) -> feed.Rows:
        """The rows, as compiled code takes them to fill a batch."""
        tail, starts = self.tail or (None, None)
        return feed.Rows(self.words, self.order, 0, len(self), tail, starts)


def concatenate(blocks: Sequence[Block]) -> Block:
    """Return all rows of ``blocks``, which have the same columns."""
    if len(blocks) == 1:
        return blocks[0]
    blocks = [block.in_order() for block in blocks]
    first = blocks[0]
    others = {name: join([block.others[name] for block in blocks]) for name in first.others}
    parts = [block.words for block in blocks]
    words = side_by_side(parts)
    if words is None:
        words = feed.pool.empty((sum(map(len, blocks)), first.layout.width), np.int32)
        np.concatenate(parts, out=words)
    tail = None if first.tail is None else _joined([block.tail for block in blocks if block.tail is not None])
    return Block(first.layout, words, tail, others, padding=blocks[-1].padding)


def _nbytes(values: Values) -> int:
    if isinstance(values, Ragged):
        weights = 0 if values.weights is None else values.weights.nbytes
        return int(values.values.nbytes + values.offsets.nbytes + weights)
    return int(values.nbytes)


def side_by_side(parts: list[npt.NDArray[np.int32]]) -> npt.NDArray[np.int32] | None:
    """Return rows that follow each other in one piece of memory as one array, without a copy; None: they do not."""
    parts = [part for part in parts if len(part)]
    memory: Any = parts[0].base if parts else None
    if not isinstance(memory, np.ndarray) or memory.dtype != np.uint8 or not memory.flags.c_contiguous:
        return None
    begin = end = feed.address(parts[0])
    for part in parts:
        if part.base is not memory or not part.flags.c_contiguous or feed.address(part) != end:
            return None
        end += part.nbytes
    at = feed.address(memory)
    return memory.reshape(-1)[begin - at : end - at].view(np.int32).reshape(-1, parts[0].shape[1])


def _tail_of(columns: Sequence[Ragged], rows: int) -> Tail:
    """Return the bags of some columns, row by row.

    >>> a = Ragged(np.array([1, 2, 3], np.int32), np.array([0, 2, 3]))
    >>> b = Ragged(np.array([8, 9], np.int32), np.array([0, 1, 2]))
    >>> _tail_of([a, b], 2).words.tolist()
    [1, 2, 8, 3, 9]
    """
    lengths = np.array([np.diff(column.offsets) for column in columns], np.int64).reshape(len(columns), rows).T
    bags = [Bag(i, column.weights is not None, column.values.itemsize == 8) for i, column in enumerate(columns)]
    starts = offsets_of((lengths * [bag.size for bag in bags]).sum(axis=1))
    words = feed.pool.empty((int(starts[-1]),), np.int32)
    for i, column in enumerate(columns):
        ids, weights = _places(starts[:-1], lengths, bags[: i + 1])
        words[ids] = column.values.view(np.int32).reshape(ids.shape)
        if column.weights is not None:
            words[weights] = column.weights.view(np.int32)
    return Tail(words, starts)


def _column_of(words: npt.NDArray[np.int32], tail: Tail, bags: Sequence[Bag]) -> Ragged:
    """Return the last of some columns of bags, which are the first ones of the tails."""
    lengths, last = words[:, bags[-1].word], bags[-1]
    offsets = offsets_of(lengths)
    found = None
    if words.flags.c_contiguous:
        columns = np.array([(bag.word, bag.size, bag.is_weighted) for bag in bags], np.int64)
        found = feed.bags(words, tail.words, tail.starts, columns, int(offsets[-1]))
    if found is None:
        all_lengths = np.stack([words[:, bag.word] for bag in bags], axis=1).astype(np.int64)
        at, of_weights = _places(tail.starts[:-1], all_lengths, bags)
        ids: npt.NDArray[Any] = tail.words[at].view(np.int64 if last.is_wide else np.int32).reshape(-1)
        found = ids, tail.words[of_weights].view(np.float32) if last.is_weighted else None
    return Ragged(found[0], offsets, found[1])


def _taken(tail: Tail, rows: npt.NDArray[np.int64]) -> Tail:
    lengths = np.diff(tail.starts)[rows]
    starts = offsets_of(lengths)
    words = feed.take_tails(tail.words, tail.starts, rows, int(starts[-1]))
    if words is None:
        words = tail.words[places_of(tail.starts[rows], lengths)]
    return Tail(words, starts)


def _joined(tails: Sequence[Tail]) -> Tail:
    """Return the tails of all rows, one block after the other."""
    words = [tail.words[tail.starts[0] : tail.starts[-1]] for tail in tails]
    ends = np.cumsum([0, *map(len, words)])
    starts = [tail.starts[:-1] - tail.starts[0] + end for tail, end in zip(tails, ends, strict=False)]
    whole = feed.pool.empty((int(ends[-1]),), np.int32)
    return Tail(np.concatenate(words, out=whole), np.concatenate([*starts, ends[-1:]]))


def _places(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], bags: Sequence[Bag]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the places of the words of each id in the last column, (ids, 1 or 2), and the places of their weights."""
    own, step = lengths[:, len(bags) - 1], 1 + bags[-1].is_wide
    before = [bag.size for bag in bags[:-1]]
    begin = starts + (lengths[:, : len(before)] * np.array(before, np.int64)).sum(axis=1)
    within = np.arange(own.sum()) - np.repeat(np.cumsum(own) - own, own)
    ids = (np.repeat(begin, own) + step * within)[:, None] + np.arange(step)
    return ids, np.repeat(begin + step * own, own) + within
