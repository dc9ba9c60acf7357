"""Tables in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparrow import fields
from sparrow.data.errors import DataError
from sparrow.data.sources.base import BadRows, Reader, Rows, Source, check_columns

SAMPLE: Final = 64
"""Rows of a table that its fingerprint covers."""


class Tables(Source):
    """An Arrow table (or record batch, or columns by name) as a source.

    >>> Tables({"item": [1, 2, 3]}, chunk_rows=2).open(["item"]).num_chunks
    2
    """

    def __init__(self, table: Any, chunk_rows: int = 65536) -> None:
        """Take a table. ``chunk_rows`` is the number of rows to convert at a time, and the unit of shuffling."""
        if isinstance(table, Mapping):
            try:
                table = pa.table(dict(table))
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise DataError(f"the columns do not make a table: {error}", "table in memory") from None
        elif isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            raise TypeError(f"Tables takes an Arrow table or columns by name, got {type(table).__name__}")
        fields.integer("Tables.chunk_rows", chunk_rows)
        for i, field in enumerate(table.schema):  # only tables in memory hold views, files never do
            if pa.types.is_string_view(field.type):
                table = table.set_column(i, field.name, table[i].cast(pa.large_string()))
        self.table = table
        self.chunk_rows = chunk_rows

    def open(self, columns: Sequence[str]) -> Reader:
        """Check the columns."""
        check_columns("table in memory", columns, self.table.column_names)
        return TableReader(self.table.select(list(columns)), self.chunk_rows)

    def column_names(self) -> list[str]:
        """Return the table's columns."""
        return list(self.table.column_names)


class TableReader(Reader):
    """Slices of a table."""

    def __init__(self, table: Any, chunk_rows: int) -> None:
        self._table = table
        self._chunk_rows = chunk_rows

    @property
    def num_chunks(self) -> int:
        """Slices."""
        return -(-int(self._table.num_rows) // self._chunk_rows)

    @property
    def num_rows(self) -> int:
        """The table's."""
        return int(self._table.num_rows)

    @property
    def fingerprint(self) -> str:
        """The table's shape and schema, and `SAMPLE` of its rows at even distances."""
        rows = np.linspace(0, max(self._table.num_rows - 1, 0), min(SAMPLE, self._table.num_rows)).astype(np.int64)
        try:
            values = self._table.take(pa.array(rows)).to_pydict()
        except pa.ArrowException as error:
            raise DataError(f"cannot be read, it may be damaged: {error}", "table in memory", "row 0") from None
        facts = (self._table.num_rows, self._chunk_rows, str(self._table.schema), values)
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]

    @property
    def schemas(self) -> Sequence[tuple[str, dict[str, Any]]]:
        """The schema of the one table."""
        return [("table in memory", {field.name: field.type for field in self._table.schema})]

    def read(self, chunk: int, bad_rows: BadRows) -> Rows:
        """Return one slice, without a copy."""
        first = chunk * self._chunk_rows
        return Rows(self._table.slice(first, self._chunk_rows), "table in memory", lambda row: f"row {first + row}")
