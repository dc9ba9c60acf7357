"""A column of strings with several values each, as separate columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.data.errors import DataError, shown
from sparrow.data.sources.base import BadRows, Reader, ReaderOver, Rows, Source, check_columns, register_source
from sparrow.data.values import element_type, is_text, plain


@register_source("split")
@dataclasses.dataclass(frozen=True)
class Split(Source):
    """Another source with one column of joined values split into several columns.

    >>> from sparrow.data import Tables
    >>> source = Split(Tables({"id": [1, 2], "both": ["red:7", "blue:"]}), "both", ":", into=("color", "size"))
    >>> source.open(["id", "size"]).read(0, "error").table.to_pydict()
    {'id': [1, 2], 'size': ['7', None]}

    Attributes:
      source: the other source.
      column: the column to split.
      separator: the separator between the values.
      into: the names of the values, in order; an empty one is missing.
    """

    source: Source
    column: str
    separator: str
    into: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.separator, str) or not self.separator:
            raise ValueError(f"source 'split': separator must be one or more characters, got {self.separator!r}")
        if isinstance(self.into, str) or not self.into or len(set(self.into)) < len(self.into):
            raise ValueError(f"source 'split': into must be a list of different names, got {self.into!r}")

    def column_names(self) -> list[str]:
        return [*(name for name in self.source.column_names() if name != self.column), *self.into]

    def open(self, columns: Sequence[str]) -> Reader:
        check_columns(f"split column '{self.column}'", columns, self.column_names())
        needed = [name for name in columns if name not in self.into]
        if len(needed) < len(columns):
            needed.append(self.column)
        return SplitReader(self, self.source.open(needed), list(columns))


class SplitReader(ReaderOver):
    """Chunks of the other source."""

    def __init__(self, split: Split, reader: Reader, columns: list[str]) -> None:
        super().__init__(reader)
        self._split, self._columns = split, columns
        for file, schema in reader.schemas:
            kind = schema.get(split.column)
            if kind is not None and not is_text(element_type(kind)):
                raise DataError(f"only strings can be split, the column holds {kind}", file, column=split.column)
        own = dict.fromkeys(split.into, pa.string())
        held = ((file, kinds | own) for file, kinds in reader.schemas)
        self.schemas = [(file, {name: kinds[name] for name in columns}) for file, kinds in held]

    def read(self, chunk: int, bad_rows: BadRows) -> Rows:
        """Return one chunk, split; a string of more or fewer values is a malformed row."""
        split, rows = self._split, self.inner.read(chunk, bad_rows)
        if not set(split.into) & set(self._columns):
            return rows

        def parts_of(table: Any) -> Any:
            return pc.split_pattern(plain(table[split.column].combine_chunks()).cast(pa.string()), split.separator)

        def why(row: int) -> str:
            text = shown(rows.table[split.column][row].as_py())
            return f"needs {len(split.into)} values between {split.separator!r}, got {text}"

        counts = pc.fill_null(pc.list_value_length(parts_of(rows.table)), 0).to_numpy(zero_copy_only=False)
        kept = rows.without(counts != len(split.into), why, lambda _: split.column, bad_rows)
        values = parts_of(kept.table).flatten()
        values = pc.if_else(pc.equal(values, pa.scalar("", pa.string())), None, values)
        table = kept.table.drop_columns([split.column])
        for i, name in enumerate(split.into):
            table = table.append_column(name, values.take(pa.array(np.arange(i, len(values), len(split.into)))))
        return dataclasses.replace(kept, table=table.select(self._columns))
