"""Calling the compiled conversion of a record batch, or of a Parquet row group."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.kernels.feed import pool
from sparrow.kernels.feed.encoded import Encoded
from sparrow.kernels.feed.ordering import address
from sparrow.kernels.feed.plan import Plan

_ALL_GOOD, _SOME_BAD, _ASK_REFERENCE = range(3)


class Tail(NamedTuple):
    """The bags of rows, row by row.

    Attributes:
      words: (N,) int32: the ids of a row's first bag, their weights if it has any, the ids of the next, ...; at least
        32 bytes behind the last one may be read.
      starts: (rows + 1,): where each row's begin.
    """

    words: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]


class Converted(NamedTuple):
    """Converted rows.

    Attributes:
      words: (rows, width).
      bad: (rows,) mask of the rows that cannot be used; None: all can.
      tail: the bags; None: there are none.
      numbers: by step, (rows, dim) float64; None where its numbers need no transform.
      decoding: the seconds before the conversion.
    """

    words: npt.NDArray[np.int32]
    bad: npt.NDArray[np.bool_] | None
    tail: Tail | None
    numbers: list[npt.NDArray[np.float64] | None]
    decoding: float


class _Target(ctypes.Structure):
    _fields_ = [
        ("rows", ctypes.c_int64),
        ("words", ctypes.c_void_p),
        ("width", ctypes.c_int64),
        ("bad", ctypes.c_void_p),
        ("doubles", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("tail", ctypes.c_void_p),
        ("tail_size", ctypes.c_int64),
        ("decoding", ctypes.c_int64),
    ]


def convert(library: ctypes.CDLL, plan: Plan, piece: Any, width: int) -> Converted | None:
    """Convert an Arrow record batch by ``plan`` to rows of ``width`` words; None: the reference must do it."""
    # The structs of Arrow's C data interface have 9 and 10 fields of 8 bytes.
    schema, array = (ctypes.c_int64 * 9)(), (ctypes.c_int64 * 10)()
    target = _Rows(plan, piece.num_rows, width)
    piece._export_to_c(ctypes.addressof(array), ctypes.addressof(schema))
    return target.converted(
        library.sparrow_feed_convert(
            plan.array, ctypes.c_int64(len(plan.steps)), array, schema, ctypes.byref(target.raw)
        )
    )


def decode(library: ctypes.CDLL, plan: Plan, encoded: Encoded, width: int) -> Converted | None:
    """Decode and convert the columns of a Parquet row group; None: Arrow must read them."""
    target = _Rows(plan, encoded.rows, width)
    columns = encoded.columns.copy()
    columns[:, 0] += encoded.memory.__array_interface__["data"][0]
    return target.converted(
        library.sparrow_feed_decode(
            plan.array,
            ctypes.c_int64(len(plan.steps)),
            address(columns),
            ctypes.c_int64(len(columns)),
            ctypes.byref(target.raw),
        )
    )


class _Rows:
    """Room for rows, as compiled code takes it."""

    def __init__(self, plan: Plan, rows: int, width: int) -> None:
        self.words = pool.empty((rows, width), np.int32)
        self.bad = np.zeros(rows, np.uint8)
        self.numbers = [np.empty((rows, step.dim), np.float64) if step.is_transformed else None for step in plan.steps]
        self.starts = pool.empty((rows + 1,), np.int64) if plan.has_bags else None
        pointers = [0 if x is None else x.__array_interface__["data"][0] for x in self.numbers]
        self._doubles = np.array(pointers or [0], np.int64)
        self.raw = _Target(
            rows=rows,
            words=address(self.words),
            width=width,
            bad=address(self.bad),
            doubles=address(self._doubles),
            starts=None if self.starts is None else address(self.starts),
        )

    def converted(self, answer: int) -> Converted | None:
        """Return the rows, by the answer of compiled code."""
        if answer == _ASK_REFERENCE:
            return None
        tail = None
        if self.starts is not None:
            has_tail = bool(self.raw.tail)
            words = pool.held(self.raw.tail, self.raw.tail_size, np.int32) if has_tail else pool.empty((0,), np.int32)
            tail = Tail(words[: self.starts[-1]], self.starts)
        bad = self.bad.view(np.bool_) if answer == _SOME_BAD else None
        return Converted(self.words, bad, tail, self.numbers, self.raw.decoding * 1e-9)
