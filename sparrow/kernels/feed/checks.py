"""Checks of columns by compiled code; None from a function: NumPy must do it."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from sparrow.kernels.feed.loading import library
from sparrow.kernels.feed.ordering import address


def outside(labels: npt.NDArray[np.float32], most: float, integers: bool) -> bool | None:
    """Return whether a label is not from 0 to ``most``, or not an integer where all must be."""
    loaded = library()
    if loaded is None or labels.ndim != 1 or labels.dtype != np.float32 or labels.strides[0] % 4:
        return None
    stride, count = ctypes.c_int64(labels.strides[0] // 4), ctypes.c_int64(len(labels))
    found: int = loaded.sparrow_feed_outside(
        address(labels), stride, count, ctypes.c_float(most), ctypes.c_int64(integers)
    )
    return bool(found)
