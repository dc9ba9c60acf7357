"""Calling the compiled order of a window's rows, and of keys; None from a function: NumPy must do it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.kernels.feed import pool
from sparrow.kernels.feed.loading import library


def shuffled(count: int, key: int) -> npt.NDArray[np.int64] | None:
    """Return the order of ``mix64(i ^ key)`` for i in ``range(count)``."""
    loaded = library()
    if loaded is None:
        return None
    order = pool.empty((count,), np.int64)
    made = loaded.sparrow_feed_shuffled(count, key, order)
    return order if made else None


def numbered(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the place of each key among the distinct keys in ascending order."""
    loaded, out = library(), np.empty(len(keys), np.int32)
    if loaded is not None and loaded.sparrow_feed_numbered(np.ascontiguousarray(keys, np.int64), len(keys), out):
        return out
    return np.unique(keys, return_inverse=True)[1].astype(np.int32)


def take_tails(
    tail: npt.NDArray[np.int32], starts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], total: int
) -> npt.NDArray[np.int32] | None:
    """Return the tails of the given rows, one after the other, ``total`` words in all."""
    loaded = library()
    if loaded is None:
        return None
    out = pool.empty((total,), np.int32)
    loaded.sparrow_feed_take_tails(tail, starts, rows, len(rows), out)
    return out


def bags(
    words: npt.NDArray[np.int32],
    tail: npt.NDArray[np.int32],
    starts: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    count: int,
) -> tuple[npt.NDArray[np.integer[Any]], npt.NDArray[np.float32] | None] | None:
    """Return the ids and the weights in the bags of one column, ``count`` of them.

    ``columns``: (columns up to this one, 3): the word of the length of its bags, the words of an id with its weight,
    and whether ids have weights.
    """
    loaded = library()
    if loaded is None:
        return None
    is_wide = columns[-1, 1] - columns[-1, 2] == 2
    ids: npt.NDArray[np.integer[Any]] = np.empty(count, np.int64 if is_wide else np.int32)
    weights = np.empty(count, np.float32) if columns[-1, 2] else None
    shape = words.shape[1], tail, starts, len(words), columns, len(columns) - 1
    loaded.sparrow_feed_bags(words, *shape, ids, weights)
    return ids, weights
