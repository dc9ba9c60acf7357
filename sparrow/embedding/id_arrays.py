"""Ids from Python as arrays of integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.integer[Any]]
Floats: TypeAlias = npt.NDArray[np.float32]

LISTS: Final = (list, tuple, np.ndarray)
"""Types of a bag inside a list."""


def bags_of(where: str, given: Sequence[Any]) -> list[Ints]:
    """Return the ids of each bag; None is an empty one, and an id among lists is a mistake."""
    if all(bag is None or isinstance(bag, LISTS) for bag in given):
        return [integers(where, () if bag is None else bag) for bag in given]
    if any(isinstance(bag, LISTS) for bag in given):
        raise TypeError(f"{where}: a list holds either ids or lists of ids, not both")
    return [integers(where, () if id is None else (id,)) for id in given]


def integers(where: str, given: Any, what: str = "ids") -> Ints:
    """Return a 1-D array of integers, or raise an error that begins with ``where``."""
    array = np.asarray(given)
    if array.size == 0 and array.ndim <= 1:
        return np.zeros(0, np.int64)
    if array.dtype.kind not in "iu":
        remedy = "; hash or convert them first" if what == "ids" else ""
        raise TypeError(f"{where}: {what} must be integers, got {array.dtype}{remedy}")
    if array.ndim != 1:
        forms = "1-D (or 2-D for bags of one length)" if what == "ids" else "1-D"
        raise ValueError(f"{where}: {what} must be {forms}, got {array.ndim}-D")
    return array


def concatenated(bags: Sequence[Ints]) -> Ints:
    """Return all ids as integers: NumPy joins signed and unsigned ones of 64 bits to floating-point numbers."""
    bags = [bag for bag in bags if len(bag)]
    if len({bag.dtype for bag in bags}) > 1 and any(bag.dtype == np.uint64 for bag in bags):
        bags = [bag.astype(np.uint64 if bag.dtype.kind == "u" else np.int64).view(np.uint64) for bag in bags]
    return np.concatenate(bags) if bags else np.zeros(0, np.int64)
