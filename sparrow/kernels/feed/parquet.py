"""Parquet files for compiled code: their numbers, checked before anything is read by them, and encoded columns."""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.errors import DataError
from sparrow.files import AnyPath, Remote
from sparrow.kernels.feed import pool
from sparrow.kernels.feed.loading import compiled, library, struct_fields
from sparrow.kernels.native.host import address


class Leaf(NamedTuple):
    """A column without nesting: its type in Parquet, the least bytes of a value in a dictionary (0: it has none), the
    lists in each other around a value, and the optional parts outside of the innermost list (before) and inside it.
    """

    type: int
    least: int
    repeated: int
    before: int
    after: int


class Footer(NamedTuple):
    """The numbers of a footer.

    Attributes:
      leaves: (leaves, 5): the fields of each `Leaf`.
      names: the name of the column that each leaf belongs to.
      rows: the number of rows of each row group.
      chunks: (row groups, leaves, 4): the first byte of the pages, their bytes, compression and values.
    """

    leaves: npt.NDArray[np.int64]
    names: list[str]
    rows: list[int]
    chunks: npt.NDArray[np.int64]

    def leaf(self, number: int) -> Leaf:
        return Leaf(*self.leaves[number].tolist())


class _Footer(ctypes.Structure):
    _fields_ = struct_fields(
        "p leaves rows chunks n most_leaves most_groups most_chunks num_leaves num_groups group leaf"
    )


def _damaged(problem: bytes, file: str, group: int | None, column: str | None) -> DataError:
    """Return the error for a file whose numbers contradict each other; ``group`` None: in the complete file."""
    place = None if group is None else f"row group {group}"
    return DataError(f"cannot be read, it is damaged: {problem.decode()}", file, place, column)


def read_footer(data: bytes, file_size: int, file: str) -> Footer | None:
    """Return the numbers of the footer of a file of some bytes, or raise `DataError`; None: no compiled code."""
    loaded = library()
    if loaded is None:
        return None
    # The fewest bytes that each of them takes.
    leaves, rows = np.empty((len(data) // 3 + 1, 7), np.int64), np.empty(len(data) // 7 + 1, np.int64)
    chunks = np.empty((len(data) // 14 + 1, 4), np.int64)
    tables = leaves, rows, chunks
    made = _Footer(*map(address, tables), *map(len, tables), group=-1, leaf=-1)
    problem = loaded.sparrow_feed_footer(data, len(data), file_size, ctypes.byref(made))
    count, groups = made.num_leaves, made.num_groups
    if problem:
        name = None if made.leaf < 0 else _name(data, leaves[made.leaf])
        raise _damaged(problem, file, None if made.group < 0 else made.group, name)
    names = [_name(data, leaf) for leaf in leaves[:count].tolist()]
    table = chunks[: groups * count].reshape(groups, count, 4).copy()
    return Footer(leaves[:count, :5].copy(), names, rows[:groups].tolist(), table)


def check_pages(
    memory: npt.NDArray[np.uint8],
    pages: npt.NDArray[np.int64],
    of: tuple[str, int, Sequence[str]],
    mixed: npt.NDArray[np.int64] | None = None,
) -> None:
    """Check the headers of pages, or raise `DataError`.

    ``pages``: (columns, 5): the first byte of each column in ``memory``, which holds all of them, its number of bytes,
    values, the number of its compression, and its `Leaf.least`. ``of``: the file, the row group, the columns' names.
    ``mixed``: (columns,), set where some pages of a column hold places in its dictionary, and others values.
    """
    which = ctypes.c_int64()
    problem = compiled().sparrow_feed_check_pages(memory, pages, len(pages), mixed, ctypes.byref(which))
    if problem:
        file, group, names = of
        raise _damaged(problem, file, group, names[which.value])


def _name(data: bytes, leaf: Any) -> str:
    begin, size = int(leaf[5]), int(leaf[6])
    return data[begin : begin + size].decode(errors="replace")


CODECS: Final = (0, 1)
"""The compressions that compiled code reads, by their numbers in Parquet: none, and Snappy."""


@dataclasses.dataclass(frozen=True)
class Encoded:
    """The columns of a row group as they are in the file, for compiled code to decode.

    Attributes:
      rows: the number of rows.
      columns: (columns, 11): the fields of ``EncodedColumn`` of parquet.h, which describes them; the first byte of the
        pages is counted in ``memory``.
      memory: the bytes of the pages.
    """

    rows: int
    columns: npt.NDArray[np.int64]
    memory: Any

    def run(self, loaded: ctypes.CDLL, steps: Any, num_steps: int, target: Any) -> int:
        columns = self.columns.copy()
        columns[:, 0] += address(self.memory)
        answer: int = loaded.sparrow_feed_decode(steps, num_steps, columns, len(columns), ctypes.byref(target))
        return answer


def read(path: AnyPath, spans: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8] | None:
    """Return bytes of a file, one span after the other, each its first byte and its size; None: they cannot be read."""
    loaded = library()
    if loaded is None:
        return None
    memory = pool.empty((int(spans[:, 1].sum()),), np.uint8)
    if isinstance(path, Remote):
        return memory if path.read_spans(spans.tolist(), memory) else None
    return memory if loaded.sparrow_feed_read(os.fsencode(path), spans, len(spans), memory) else None
