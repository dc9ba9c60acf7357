"""Tables in memory."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow import fields
from sparrow.data.errors import IN_MEMORY, DataError
from sparrow.data.sources.base import BadRows, Reader, Rows, Source, check_columns, register_source
from sparrow.data.values import without_views

_TOO_LARGE: Final = "an integer has more than 64 bits; make that column strings or floats"
SAMPLE: Final = 64
"""Rows of a table that its fingerprint covers."""


@register_source("in_memory")
@dataclasses.dataclass(frozen=True)
class InMemory(Source):
    """Rows that were in memory, as the config of a run holds them: it knows about them, and cannot read them again.

    Attributes:
      rows: their number.
      columns: their columns.
    """

    rows: int
    columns: tuple[str, ...]

    def open(self, columns: Sequence[str]) -> Reader:
        raise DataError(
            f"the run was given {self.rows} rows in memory, which its folder does not hold; give the data again, or "
            "name a file instead of 'in_memory' in the config",
            IN_MEMORY,
        )

    def column_names(self) -> list[str]:
        return list(self.columns)


class Tables(Source):
    """Rows in memory: an Arrow table, a frame of pandas or Polars, or columns by name.

    Anything with ``__arrow_c_stream__`` is taken, without a copy where Arrow allows.

    >>> Tables({"item": [1, 2, 3]}, chunk_rows=2).open(["item"]).num_chunks
    2
    """

    def __init__(self, table: Any, chunk_rows: int = 65536, row_numbers: npt.NDArray[np.int64] | None = None) -> None:
        """Take a table.

        Args:
          table: the rows.
          chunk_rows: the number of rows to convert at a time, and the unit of shuffling.
          row_numbers: the numbers that errors give to the rows; None: their positions.
        """
        fields.integer("Tables.chunk_rows", chunk_rows)
        self.table = without_views(table if isinstance(table, pa.Table) else _arrow(table), only_strings=True)
        self.chunk_rows, self.row_numbers = chunk_rows, row_numbers

    def take(self, rows: npt.NDArray[np.int64]) -> Tables:
        """Return some of the rows, by position; errors give them the numbers that they have here."""
        numbers = rows if self.row_numbers is None else self.row_numbers[rows]
        return Tables(self.table.take(pa.array(rows)), self.chunk_rows, numbers)

    def stand_in(self) -> InMemory:
        """Return the record that a config holds in its place."""
        return InMemory(self.table.num_rows, tuple(self.table.column_names))

    def open(self, columns: Sequence[str]) -> Reader:
        check_columns(IN_MEMORY, columns, self.table.column_names)
        try:
            read = without_views(self.table.select(list(columns)))
        except pa.ArrowInvalid as error:
            raise DataError(f"bytes are read as strings, and some are not UTF-8: {error}", IN_MEMORY) from None
        return TableReader(read, self.chunk_rows, self.row_numbers)

    def column_names(self) -> list[str]:
        return list(self.table.column_names)


def refuse_scalars(columns: Mapping[str, Any]) -> None:
    """Raise where a column is one value, such as ``{"price": 1.5}``."""
    for name, values in columns.items():
        if values is None or isinstance(values, str | bytes | int | float):
            raise DataError(f"column '{name}' must have a value per row, such as [{values!r}]", "table in memory")


def _reasons(error: Exception) -> str:
    """Return the message of an error of Arrow, whose arguments may be several sentences.

    >>> _reasons(TypeError("Could not convert 'a'", "Conversion failed for column price"))
    "Could not convert 'a'; Conversion failed for column price"
    """
    return "; ".join(map(str, error.args))


def _arrow(given: Any) -> Any:
    """Return anything of columns as an Arrow table."""
    if type(given).__name__ == "Series":
        raise TypeError("rows must be a frame, got a Series; for one row take frame.iloc[[0]]")
    is_columns = isinstance(given, Mapping)
    if is_columns:
        refuse_scalars(given)
    try:
        if is_columns:
            return pa.table(dict(given))
        if isinstance(given, pa.RecordBatch):
            return pa.Table.from_batches([given])
        if type(given).__module__.partition(".")[0] == "pandas":  # whose stream holds the index as well
            return pa.Table.from_pandas(given, preserve_index=False)
        if hasattr(given, "__arrow_c_stream__"):
            return pa.table(given)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        why = _TOO_LARGE if isinstance(error, OverflowError) else _reasons(error)
        rows = "the columns do" if is_columns else f"{type(given).__name__} does"
        raise DataError(f"{rows} not make a table: {why}", IN_MEMORY) from None
    raise TypeError(
        f"rows must be a frame of pandas or Polars, an Arrow table, or columns by name, got {type(given).__name__}"
    )


class TableReader(Reader):
    """Slices of a table."""

    def __init__(self, table: Any, chunk_rows: int, row_numbers: npt.NDArray[np.int64] | None = None) -> None:
        self._table = table
        self._chunk_rows, self._row_numbers = chunk_rows, row_numbers
        self.num_chunks = -(-table.num_rows // chunk_rows)
        self.schemas = [(IN_MEMORY, {field.name: field.type for field in table.schema})]

    @property
    def num_rows(self) -> int:
        return int(self._table.num_rows)

    @property
    def fingerprint(self) -> str:
        """The table's shape and schema, and `SAMPLE` of its rows at even distances."""
        rows = np.linspace(0, max(self._table.num_rows - 1, 0), min(SAMPLE, self._table.num_rows)).astype(np.int64)
        try:
            values = self._table.take(pa.array(rows)).to_pydict()
        except pa.ArrowException as error:
            raise DataError(f"cannot be read, it may be damaged: {error}", IN_MEMORY, "row 0") from None
        facts = (self._table.num_rows, self._chunk_rows, str(self._table.schema), values)
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]

    def read(self, chunk: int, bad_rows: BadRows) -> Rows:
        first = chunk * self._chunk_rows
        numbers = self._row_numbers

        def place(row: int) -> str:
            return f"row {first + row if numbers is None else numbers[first + row]}"

        return Rows(self._table.slice(first, self._chunk_rows), IN_MEMORY, place)
