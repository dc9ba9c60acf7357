"""The bags of rows: the ids of all columns of bags adjacent, row by row, so that they move with their row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.data.layout import Bag
from sparrow.embedding import Ragged
from sparrow.kernels import feed
from sparrow.kernels.feed import Tail


def tail_of(columns: Sequence[Ragged], rows: int) -> Tail:
    """Return the bags of some columns, row by row.

    >>> a = Ragged(np.array([1, 2, 3], np.int32), np.array([0, 2, 3]))
    >>> b = Ragged(np.array([8, 9], np.int32), np.array([0, 1, 2]))
    >>> tail_of([a, b], 2).words.tolist()
    [1, 2, 8, 3, 9]
    """
    lengths = np.array([np.diff(column.offsets) for column in columns], np.int64).reshape(len(columns), rows).T
    bags = [Bag(i, column.weights is not None, column.values.itemsize == 8) for i, column in enumerate(columns)]
    starts = np.zeros(rows + 1, np.int64)
    np.cumsum((lengths * [bag.size for bag in bags]).sum(axis=1), out=starts[1:])
    words = feed.pool.empty((int(starts[-1]),), np.int32)
    for i, column in enumerate(columns):
        ids, weights = _places(starts[:-1], lengths, bags[: i + 1])
        words[ids] = column.values.view(np.int32).reshape(ids.shape)
        if column.weights is not None:
            words[weights] = column.weights.view(np.int32)
    return Tail(words, starts)


def column_of(words: npt.NDArray[np.int32], tail: Tail, bags: Sequence[Bag]) -> Ragged:
    """Return the last of some columns of bags, which are the first ones of the tails."""
    lengths, last = words[:, bags[-1].word], bags[-1]
    offsets = np.zeros(len(words) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
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


def taken(tail: Tail, rows: npt.NDArray[np.int64]) -> Tail:
    """Return the tails of the given rows."""
    starts = np.zeros(len(rows) + 1, np.int64)
    lengths = (tail.starts[1:] - tail.starts[:-1])[rows]
    np.cumsum(lengths, out=starts[1:])
    words = feed.take_tails(tail.words, tail.starts, rows, int(starts[-1]))
    if words is None:
        words = tail.words[np.repeat(tail.starts[rows] - starts[:-1], lengths) + np.arange(starts[-1])]
    return Tail(words, starts)


def joined(tails: Sequence[Tail]) -> Tail:
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
