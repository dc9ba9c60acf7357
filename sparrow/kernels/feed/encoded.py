"""`EncodedColumn`: a column of a Parquet row group as it is in the file, for compiled code to decode."""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.files import AnyPath, Remote
from sparrow.kernels.feed import pool
from sparrow.kernels.feed.loading import library
from sparrow.kernels.feed.ordering import address

CODECS: Final = (0, 1)
"""The compressions that compiled code reads, by their numbers in Parquet: none, and Snappy."""


@dataclasses.dataclass(frozen=True)
class EncodedColumn:
    """The place and the form of a column's pages.

    Attributes:
      begin: the first byte, in the file.
      size: the number of bytes.
      letter: the type of its values, as Arrow writes it: one of ``iIlLfgbu``.
      codec: one of `CODECS`.
      values: the number of values, with the missing ones.
      is_list: whether a row holds a list of them.
      list_may_miss, entry_may_miss: whether lists, and values, may be missing.
      each: the number of values of every list; 0: any.
      least, most: integers outside do not fit the column's type; both 0: all do.
    """

    begin: int
    size: int
    letter: str
    codec: int
    values: int
    is_list: bool
    list_may_miss: bool
    entry_may_miss: bool
    each: int
    least: int
    most: int


@dataclasses.dataclass(frozen=True)
class Encoded:
    """The columns of a row group.

    Attributes:
      rows: the number of rows.
      columns: the fields of each column, as ``EncodedColumn`` of parquet.h has them; its address: from ``memory`` on.
      memory: the bytes of the pages.
    """

    rows: int
    columns: npt.NDArray[np.int64]
    memory: Any

    def run(self, loaded: ctypes.CDLL, steps: Any, num_steps: int, target: Any) -> int:
        columns = self.columns.copy()
        columns[:, 0] += self.memory.__array_interface__["data"][0]
        answer: int = loaded.sparrow_feed_decode(
            steps, ctypes.c_int64(num_steps), address(columns), ctypes.c_int64(len(columns)), ctypes.byref(target)
        )
        return answer


def fields(columns: Sequence[EncodedColumn], begins: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the fields of columns whose pages begin at these bytes of the memory."""
    return np.array(
        [
            (
                begin,
                *(column.size, ord(column.letter), column.codec, column.values),
                *(column.is_list, column.list_may_miss, column.entry_may_miss, column.each),
                *(column.least, column.most),
            )
            for column, begin in zip(columns, begins, strict=True)
        ],
        np.int64,
    ).reshape(-1, 11)


def read(path: AnyPath, spans: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8] | None:
    """Return bytes of a file, one span after the other, each its first byte and its size; None: they cannot be read."""
    loaded = library()
    if loaded is None:
        return None
    memory = pool.empty((int(spans[:, 1].sum()),), np.uint8)
    if isinstance(path, Remote):
        return memory if path.read_spans(spans.tolist(), memory) else None
    done = loaded.sparrow_feed_read(os.fsencode(path), address(spans), ctypes.c_int64(len(spans)), address(memory))
    return memory if done else None
