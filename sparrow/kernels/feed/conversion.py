"""Calling the compiled conversion of a record batch."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.kernels.feed.plan import Plan

_ALL_GOOD, _SOME_BAD, _ASK_REFERENCE = range(3)


class Bags(NamedTuple):
    """Ragged ids: values (N,), offsets (rows + 1,), and weights (N,) or None."""

    values: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32] | None


class Converted(NamedTuple):
    """A converted record batch.

    Attributes:
      bad: (rows,) mask of the rows that cannot be used; None: all can.
      bags: by step; None where it is not ragged.
      numbers: by step, (rows, dim) float64; None where its numbers need no transform.
    """

    bad: npt.NDArray[np.bool_] | None
    bags: list[Bags | None]
    numbers: list[npt.NDArray[np.float64] | None]


def convert(library: ctypes.CDLL, plan: Plan, piece: Any, words: npt.NDArray[np.int32]) -> Converted | None:
    """Convert an Arrow record batch by ``plan`` into ``words``, (rows, width); None: the reference must do it."""
    rows, steps = len(words), plan.steps
    # The structs of Arrow's C data interface have 9 and 10 fields of 8 bytes.
    schema, array = (ctypes.c_int64 * 9)(), (ctypes.c_int64 * 10)()
    piece._export_to_c(ctypes.addressof(array), ctypes.addressof(schema))
    bad = np.zeros(rows, np.uint8)
    numbers = [np.empty((rows, step.dim), np.float64) if step.is_transformed else None for step in steps]
    pointers = ctypes.c_void_p * max(len(steps), 1)
    sizes = (ctypes.c_int64 * max(len(steps), 1))()
    made = ctypes.c_void_p()
    answer = library.sparrow_feed_convert(
        plan.array,
        ctypes.c_int64(len(steps)),
        array,
        schema,
        ctypes.c_void_p(words.ctypes.data),
        ctypes.c_int64(words.shape[1]),
        ctypes.c_void_p(bad.ctypes.data),
        pointers(*(None if of_step is None else of_step.ctypes.data for of_step in numbers)),
        ctypes.byref(made),
        sizes,
    )
    if answer == _ASK_REFERENCE:
        return None
    bags: list[Bags | None] = [
        Bags(
            np.empty(size, np.int32),
            np.empty(rows + 1, np.int64),
            np.empty(size, np.float32) if step.is_weighted else None,
        )
        if word < 0
        else None
        for step, word, size in zip(steps, plan.words, sizes, strict=False)
    ]
    library.sparrow_feed_bags(
        made,
        pointers(*(None if of_step is None else of_step.values.ctypes.data for of_step in bags)),
        pointers(*(None if of_step is None else of_step.offsets.ctypes.data for of_step in bags)),
        pointers(*(None if b is None or b.weights is None else b.weights.ctypes.data for b in bags)),
    )
    return Converted(bad.view(np.bool_) if answer == _SOME_BAD else None, bags, numbers)
