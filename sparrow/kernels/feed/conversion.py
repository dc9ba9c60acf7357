"""Calling the compiled conversion of a record batch, of a Parquet row group, or of lines of text."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.kernels.feed import pool
from sparrow.kernels.feed.loading import library, struct_fields
from sparrow.kernels.feed.parquet import Encoded
from sparrow.kernels.feed.steps import Steps
from sparrow.kernels.feed.text import EncodedText
from sparrow.kernels.native.host import address

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


class Later(NamedTuple):
    """Numbers that are yet to be transformed, and their places, row by row: ``row * dim + k``, ascending."""

    values: npt.NDArray[np.float64]
    places: npt.NDArray[np.int64]


class Converted(NamedTuple):
    """Converted rows.

    Attributes:
      words: (rows, width).
      bad: (rows,) mask of the rows that cannot be used; None: all can.
      tail: the bags; None: there are none.
      later: by step, the numbers that are yet to be transformed; None where the step transforms none.
      decoding: the seconds before the conversion.
    """

    words: npt.NDArray[np.int32]
    bad: npt.NDArray[np.bool_] | None
    tail: Tail | None
    later: list[Later | None]
    decoding: float


class _Target(ctypes.Structure):
    _fields_ = struct_fields(
        "n rows p words n width p bad later places starts n checks_labels p num_later tail n tail_size decoding"
    )


def convert(steps: Steps, piece: Any, width: int) -> Converted | None:
    """Convert an Arrow record batch by ``steps`` to rows of ``width`` words; None: the reference must do it."""
    if (loaded := library()) is None:
        return None
    # The structs of Arrow's C data interface have 9 and 10 fields of 8 bytes.
    schema, array = (ctypes.c_int64 * 9)(), (ctypes.c_int64 * 10)()
    target = _Rows(steps, piece.num_rows, width)
    piece._export_to_c(ctypes.addressof(array), ctypes.addressof(schema))
    given = steps.array, len(steps.steps), array, schema, ctypes.byref(target.raw)
    return target.converted(loaded.sparrow_feed_convert(*given))


def decode(
    steps: Steps, encoded: Encoded | EncodedText, width: int, words: npt.NDArray[np.int32] | None = None
) -> Converted | None:
    """Decode and convert a Parquet row group, or lines of text; None: Arrow must read them, or a label is outside.

    ``words``: memory for the rows, (rows, width); None: some is taken.
    """
    if (loaded := library()) is None:
        return None
    target = _Rows(steps, encoded.rows, width, words)
    target.raw.checks_labels = 1
    return target.converted(encoded.run(loaded, steps.array, len(steps.steps), target.raw))


class _Rows:
    """Memory for rows, as compiled code takes it."""

    def __init__(self, steps: Steps, rows: int, width: int, words: npt.NDArray[np.int32] | None = None) -> None:
        self.words = pool.empty((rows, width), np.int32) if words is None else words
        self.bad = np.zeros(rows, np.uint8)
        # One piece of memory for the numbers of all steps: a request of one row has many columns.
        self._begins = (rows * steps.transformed).tolist()
        self._values, self._places = (pool.empty((self._begins[-1],), dtype) for dtype in (np.float64, np.int64))
        self.starts = pool.empty((rows + 1,), np.int64) if steps.has_bags else None
        starts = np.array([[address(self._values)], [address(self._places)]]) + 8 * rows * steps.transformed[:-1]
        self._later = np.where(np.diff(steps.transformed) > 0, starts, 0)
        self._num_later = np.zeros(len(steps.steps), np.int64)
        self.raw = _Target(
            rows=rows,
            words=address(self.words),
            width=width,
            bad=address(self.bad),
            later=address(self._later[0]),
            places=address(self._later[1]),
            starts=address(self.starts),
            num_later=address(self._num_later),
        )

    def converted(self, answer: int) -> Converted | None:
        """Return the rows, by the answer of compiled code."""
        if answer == _ASK_REFERENCE:
            return None
        rows = self.raw.rows  # of text: at most the rows that there is memory for
        tail = None
        if self.starts is not None:
            has_tail = bool(self.raw.tail)
            words = pool.held(self.raw.tail, self.raw.tail_size, np.int32) if has_tail else pool.empty((0,), np.int32)
            tail = Tail(words[: self.starts[rows]], self.starts[: rows + 1])
        bad = self.bad[:rows].view(np.bool_) if answer == _SOME_BAD else None
        later = [
            Later(self._values[begin : begin + count], self._places[begin : begin + count]) if end > begin else None
            for begin, end, count in zip(self._begins, self._begins[1:], self._num_later.tolist(), strict=False)
        ]
        return Converted(self.words[:rows], bad, tail, later, self.raw.decoding * 1e-9)
