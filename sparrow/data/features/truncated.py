"""Sequences cut to their newest, or their first, elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.embedding import Ragged


def truncated(values: npt.NDArray[Any], offsets: npt.NDArray[np.int64], length: int, keep: str) -> Ragged:
    """Return the sequences with at most ``length`` elements each: the "last" or the "first".

    >>> truncated(np.array([1, 2, 3, 4]), np.array([0, 3, 4]), 2, "last").to_lists()
    [[2, 3], [4]]
    """
    lengths = np.diff(offsets)
    if len(lengths) == 0 or lengths.max() <= length:
        return Ragged(values, offsets)
    kept = np.minimum(lengths, length)
    starts = offsets[:-1] if keep == "first" else offsets[1:] - kept
    ends = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(kept, out=ends[1:])
    place = np.arange(ends[-1]) - np.repeat(ends[:-1], kept)  # of an element in its row
    return Ragged(values[np.repeat(starts, kept) + place], ends)
