"""`read_footer` and `check_pages`: the numbers of a Parquet file, checked before anything is read by them."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.kernels.feed.loading import library
from sparrow.kernels.feed.ordering import address


class Leaf(NamedTuple):
    """A column without nesting.

    Attributes:
      type: the number of its type in Parquet.
      least: bytes of a value in a dictionary, at least; 0: the type has none.
      repeated: lists in each other around a value.
      before: optional parts outside of the innermost list.
      after: optional parts inside it.
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


class Refused(Exception):
    """A file whose numbers contradict each other.

    Attributes:
      why: the contradiction.
      group: the row group; None: it is in the complete file.
      column: the name of the column, or its number where only that is known; None: it is in all of them.
    """

    def __init__(self, why: str, group: int | None = None, column: str | int | None = None) -> None:
        super().__init__(why)
        self.why, self.group, self.column = why, group, column


class _Footer(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("leaves", "rows", "chunks")),
        *((name, ctypes.c_int64) for name in ("most_leaves", "most_groups", "most_chunks")),
        *((name, ctypes.c_int64) for name in ("num_leaves", "num_groups", "group", "leaf")),
    ]


def read_footer(data: bytes, file_size: int) -> Footer | None:
    """Return the numbers of the footer of a file of ``file_size`` bytes, or raise `Refused`; None: no compiled code."""
    loaded = library()
    if loaded is None:
        return None
    # The fewest bytes that each of them takes.
    leaves, rows = np.empty((len(data) // 3 + 1, 7), np.int64), np.empty(len(data) // 7 + 1, np.int64)
    chunks = np.empty((len(data) // 14 + 1, 4), np.int64)
    made = _Footer(
        **{"leaves": address(leaves), "rows": address(rows), "chunks": address(chunks)},
        **{"most_leaves": len(leaves), "most_groups": len(rows), "most_chunks": len(chunks)},
        **{"group": -1, "leaf": -1},
    )
    problem = loaded.sparrow_feed_footer(data, *map(ctypes.c_int64, (len(data), file_size)), ctypes.byref(made))
    count, groups = made.num_leaves, made.num_groups
    if problem:
        name = None if made.leaf < 0 else _name(data, leaves[made.leaf])
        raise Refused(_text(problem), None if made.group < 0 else made.group, name)
    names = [_name(data, leaf) for leaf in leaves[:count].tolist()]
    table = chunks[: groups * count].reshape(groups, count, 4).copy()
    return Footer(leaves[:count, :5].copy(), names, rows[:groups].tolist(), table)


def check_pages(
    memory: npt.NDArray[np.uint8], pages: npt.NDArray[np.int64], mixed: npt.NDArray[np.int64] | None = None
) -> None:
    """Check the headers of pages; raise `Refused`, with the number of the column.

    ``pages``: (columns, 5): the first byte of each column in ``memory``, which holds all of them, its number of bytes,
    values, the number of its compression, and its `Leaf.least`. ``mixed``: (columns,), set where some pages of a column
    hold places in its dictionary, and others values.
    """
    loaded, which = library(), ctypes.c_int64()
    assert loaded is not None  # it read the footer
    problem = loaded.sparrow_feed_check_pages(
        ctypes.c_void_p(memory.__array_interface__["data"][0]),
        ctypes.c_void_p(pages.__array_interface__["data"][0]),
        ctypes.c_int64(len(pages)),
        None if mixed is None else address(mixed),
        ctypes.byref(which),
    )
    if problem:
        raise Refused(_text(problem), column=which.value)


def _name(data: bytes, leaf: Any) -> str:
    begin, size = int(leaf[5]), int(leaf[6])
    return data[begin : begin + size].decode(errors="replace")


def _text(problem: int) -> str:
    return ctypes.string_at(problem).decode()
