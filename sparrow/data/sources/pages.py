"""The columns of Parquet files as compiled code decodes them: their bytes, and the form that the footer gives them."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow.data.errors import DataError
from sparrow.data.values import element_type, is_list, is_text
from sparrow.files import AnyPath, Remote
from sparrow.kernels import feed
from sparrow.kernels.feed import Encoded, Footer

BOOLEAN, INT32, INT64, _, FLOAT, DOUBLE, BYTE_ARRAY, _ = range(8)
"""Parquet's types of values."""
GAP: Final = 1.5
"""Columns are read in one piece where that reads at most this many times their bytes."""


class Pages:
    """The pages of some columns of one file."""

    def __init__(self, path: AnyPath, footer: Footer, schema: Any, columns: Sequence[str]) -> None:
        """Take the numbers of the file, its Arrow schema, and the columns to read."""
        self._path, self._footer = path, footer
        found: dict[str, list[int]] = {name: [] for name in columns}
        for number, name in enumerate(footer.names):
            if name in found:
                found[name].append(number)
        self._leaves = [leaf for leaves in found.values() for leaf in leaves]
        self._names = [footer.names[leaf] for leaf in self._leaves]
        self._least = footer.leaves[self._leaves, 1]
        forms = [_form(footer, found[name], schema.field(name)) for name in columns]
        self._numbers = [number for number, *_ in filter(None, forms)]
        self._forms = np.array([form for _, *form in filter(None, forms)], np.int64)  # the other fields of each column
        self._is_known = bool(columns) and len(self._forms) == len(columns)
        self._known: dict[int, tuple[Any, ...] | None] = {}

    def read(self, group: int) -> Encoded | None:
        """Return the columns of a row group; None: Arrow must read them."""
        if group not in self._known:
            self._known[group] = self._found(group)
        known = self._known[group]
        if known is None:
            return None
        spans, fields, pages = known
        memory = feed.read(self._path, spans)
        if memory is None:  # Arrow reads the group, or raises the error
            return None
        feed.check_pages(memory, pages, (str(self._path), group, self._names))
        return Encoded(self._footer.rows[group], fields, memory)

    def fetched(self, file: Remote, group: int) -> npt.NDArray[np.uint8]:
        """Return memory of the file's size, with the bytes of a row group in their places; the rest takes no memory."""
        memory = np.frombuffer(mmap.mmap(-1, file.stat().st_size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
        pages = self._pages(group)
        first, last = int(pages[:, 0].min()), int((pages[:, 0] + pages[:, 1]).max())
        if last <= len(memory):
            file.read_spans([(first, last - first)], memory[first:last])
        return memory

    def check(self, group: int, memory: npt.NDArray[np.uint8]) -> bool:
        """Refuse a row group whose pages lie about their sizes and numbers. ``memory``: the complete file.

        Return whether Arrow may read strings as dictionaries: it adds strings of plain pages to the dictionary, and
        places outside of it are then not found.
        """
        pages = self._pages(group)
        if len(pages) and (pages[:, 0] + pages[:, 1]).max() > len(memory):
            raise DataError("cannot be read, it may be damaged: it was cut off", str(self._path), f"row group {group}")
        mixed = np.zeros(len(pages), np.int64)
        feed.check_pages(memory, pages, (str(self._path), group, self._names), mixed)
        return not mixed.any()

    def _pages(self, group: int) -> npt.NDArray[np.int64]:
        """Return the pages of a row group, as `feed.check_pages` takes them, in the complete file."""
        begin, size, codec, values = self._footer.chunks[group, self._leaves].T
        return np.stack([begin, size, values, codec, self._least], axis=1)

    def _found(self, group: int) -> tuple[Any, ...] | None:
        """Return the spans of bytes to read for a row group, its columns, and their pages, for compiled code."""
        if not self._is_known:
            return None
        chunks = self._footer.chunks[group, self._numbers]
        begin, size, codec, values = chunks.T
        if not np.isin(codec, feed.CODECS).all() or (size <= 0).any():
            return None
        first, last = begin.min(), (begin + size).max()
        needed = size[np.unique(begin, return_index=True)[1]].sum()
        spans, places = np.array([(first, last - first)]), begin - first
        if last - first > GAP * needed:
            spans, places = np.stack([begin, size], axis=1), np.cumsum(size) - size
        pages = self._pages(group)
        pages[:, 0] = places
        fields = np.column_stack([places, size, self._forms[:, 0], codec, values, self._forms[:, 1:]])
        return np.ascontiguousarray(spans, np.int64), np.ascontiguousarray(fields, np.int64), pages


def _form(footer: Footer, leaves: list[int], field: Any) -> tuple[int, ...] | None:
    """Return the number of a column's leaf, Arrow's letter for its values, and the fields of its form behind them.

    None: compiled code does not decode it.
    """
    if len(leaves) != 1:
        return None
    leaf, kind = footer.leaf(leaves[0]), field.type
    letter = _letter(element_type(kind), leaf.type)
    if letter is None or leaf.before > 1 or leaf.after > 1 or leaf.repeated != is_list(kind):
        return None
    each = kind.list_size if pa.types.is_fixed_size_list(kind) else 0
    nesting = is_list(kind), bool(leaf.before), bool(leaf.after), each
    return leaves[0], ord(letter), *nesting, *_range(element_type(kind), leaf.type)


def _range(kind: Any, physical: int) -> tuple[int, int]:
    """Return the least and the most integer of a type, where the pages may hold others; else zeros."""
    if not pa.types.is_integer(kind) or kind.bit_width == (32 if physical == INT32 else 64):
        return 0, 0
    is_signed, bits = pa.types.is_signed_integer(kind), kind.bit_width
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)


def _letter(kind: Any, physical: int) -> str | None:
    """Return Arrow's letter for the values, as they are in the pages."""
    types = pa.types
    if physical == BYTE_ARRAY:
        return "u" if is_text(kind) else None
    if physical == BOOLEAN:
        return "b" if types.is_boolean(kind) else None
    if physical in (FLOAT, DOUBLE):
        return {FLOAT: "f", DOUBLE: "g"}[physical] if types.is_float32(kind) or types.is_float64(kind) else None
    if physical == INT32 and types.is_integer(kind) and kind.bit_width <= 32:
        return "I" if types.is_uint32(kind) else "i"
    if physical == INT64 and types.is_integer(kind):
        return "L" if types.is_uint64(kind) else "l"
    return None
