"""Calling the compiled order of a window's rows; None from a function: NumPy must do it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.kernels.feed.loading import library


def shuffled(count: int, key: int) -> npt.NDArray[np.int64] | None:
    """Return the order of ``mix64(i ^ key)`` for i in ``range(count)``."""
    loaded = library()
    if loaded is None:
        return None
    order = np.empty(count, np.int64)
    made = loaded.sparrow_feed_shuffled(ctypes.c_int64(count), ctypes.c_uint64(key), address(order))
    return order if made else None


def take_rows(words: npt.NDArray[np.int32], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int32] | None:
    """Return the given rows of a matrix; all of them must be in range."""
    loaded = library()
    if loaded is None or not words.flags.c_contiguous:
        return None
    rows, width = np.ascontiguousarray(rows, np.int64), words.shape[1]
    out = np.empty((len(rows), width), np.int32)
    loaded.sparrow_feed_take_rows(
        address(words), ctypes.c_int64(width), address(rows), ctypes.c_int64(len(rows)), address(out)
    )
    return out


def take_bags(
    values: npt.NDArray[Any],
    offsets: npt.NDArray[Any],
    weights: npt.NDArray[Any] | None,
    rows: npt.NDArray[np.integer[Any]],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.float32] | None] | None:
    """Values, offsets and weights of the given bags."""
    loaded = library()
    plain = values.dtype == np.int32 and offsets.dtype == np.int64 and (weights is None or weights.dtype == np.float32)
    if loaded is None or not plain:
        return None
    rows, offsets, values = (
        np.ascontiguousarray(array) for array in (rows.astype(np.int64, copy=False), offsets, values)
    )
    count = ctypes.c_int64(len(rows))
    ends = np.empty(len(rows) + 1, np.int64)
    loaded.sparrow_feed_take_offsets(address(offsets), address(rows), count, address(ends))
    taken = np.empty(int(ends[-1]), np.int32)
    new_weights = None
    if weights is not None:
        weights, new_weights = np.ascontiguousarray(weights), np.empty(len(taken), np.float32)
    loaded.sparrow_feed_take_bags(
        address(values),
        None if weights is None else address(weights),
        address(offsets),
        address(rows),
        count,
        address(taken),
        None if new_weights is None else address(new_weights),
    )
    return taken, ends, new_weights


def address(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    """Return the array's memory, as compiled code takes it."""
    pointer = ctypes.c_void_p(array.__array_interface__["data"][0])
    pointer.array = array  # type: ignore[attr-defined]  # stays alive as long as the pointer: it may be a temporary
    return pointer
