"""The columns of Parquet files as compiled code decodes them: their bytes, and the form that the footer gives them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparrow.data.values import element_type, is_list, is_text
from sparrow.kernels import feed
from sparrow.kernels.feed import Encoded, EncodedColumn

GAP: Final = 1.5
"""Columns are read in one piece where that reads at most this many times their bytes."""


class Pages:
    """The pages of one file."""

    def __init__(self, path: Path, footer: Any, schema: Any, columns: Sequence[str]) -> None:
        """Take the file's metadata, its Arrow schema, and the columns to read."""
        self._path, self._footer = path, footer
        self._leaves = [_leaf(footer.schema, schema.field(name)) for name in columns]
        self._known: dict[int, tuple[Any, Any] | None] = {}

    def read(self, group: int) -> Encoded | None:
        """Return the columns of a row group; None: Arrow must read them."""
        if group not in self._known:
            self._known[group] = self._found(group)
        known = self._known[group]
        if known is None:
            return None
        spans, fields = known
        memory = feed.read(self._path, spans)
        # Without memory, Arrow reads the group, or raises the error.
        return None if memory is None else Encoded(self._footer.row_group(group).num_rows, fields, memory)

    def _found(self, group: int) -> tuple[Any, Any] | None:
        """Return the spans of bytes to read for a row group, and its columns, both for compiled code."""
        meta, columns = self._footer.row_group(group), []
        for leaf in self._leaves:
            if leaf is None:
                return None
            number, form = leaf
            column = meta.column(number)
            codec = feed.CODECS.get(column.compression)
            if codec is None or column.file_path:
                return None
            begin = int(column.dictionary_page_offset or column.data_page_offset)
            size, values = column.total_compressed_size, column.num_values
            columns.append(EncodedColumn(begin, size, codec=codec, values=values, **form))
        if not columns or any(column.begin < 0 or column.size <= 0 for column in columns):
            return None
        first = min(column.begin for column in columns)
        last = max(column.begin + column.size for column in columns)
        needed = sum({column.begin: column.size for column in columns}.values())
        if last - first <= GAP * needed:
            whole = np.array([(first, last - first)], np.int64)
            return whole, feed.fields(columns, [column.begin - first for column in columns])
        spans, begins, at = [], [], 0
        for column in columns:
            spans.append((column.begin, column.size))
            begins.append(at)
            at += column.size
        return np.array(spans, np.int64), feed.fields(columns, begins)


def _leaf(schema: Any, field: Any) -> tuple[int, dict[str, Any]] | None:
    """Return the number of a column among the file's, and its form; None: compiled code does not decode it."""
    name, kind = field.name, field.type
    paths = [schema.column(i).path for i in range(len(schema))]
    found = [i for i, path in enumerate(paths) if path == name or path.startswith(f"{name}.")]
    if len(found) != 1:
        return None
    leaf = schema.column(found[0])
    letter = _letter(element_type(kind), leaf.physical_type)
    levels = leaf.max_repetition_level, leaf.max_definition_level
    if letter is None:
        return None
    if not is_list(kind):
        form = {"is_list": False, "list_may_miss": False, "entry_may_miss": bool(levels[1]), "each": 0}
        return (found[0], {"letter": letter, **form}) if levels in ((0, 0), (0, 1)) else None
    list_may_miss, entry_may_miss = bool(field.nullable), bool(kind.value_field.nullable)
    each = kind.list_size if pa.types.is_fixed_size_list(kind) else 0
    form = {"is_list": True, "list_may_miss": list_may_miss, "entry_may_miss": entry_may_miss, "each": each}
    return (found[0], {"letter": letter, **form}) if levels == (1, 1 + list_may_miss + entry_may_miss) else None


def _letter(kind: Any, physical: str) -> str | None:
    """Return Arrow's letter for the values, as they are in the pages."""
    types = pa.types
    if physical == "BYTE_ARRAY":
        return "u" if is_text(kind) else None
    if physical == "BOOLEAN":
        return "b" if types.is_boolean(kind) else None
    if physical in ("FLOAT", "DOUBLE"):
        return {"FLOAT": "f", "DOUBLE": "g"}[physical] if types.is_float32(kind) or types.is_float64(kind) else None
    if physical == "INT32" and types.is_integer(kind):
        return "I" if types.is_uint32(kind) else "i"
    if physical == "INT64" and types.is_integer(kind):
        return "L" if types.is_uint64(kind) else "l"
    return None
