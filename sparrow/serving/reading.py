"""`Reading`: rows as a request gives them, converted to a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sparrow.data import IN_MEMORY, Batch, Converter, Feature, MissingColumn, Tables
from sparrow.data.sources import Rows
from sparrow.serving.untyped import Types

KEPT: Final = 32
"""Schemas whose conversions stay in memory: requests of a few rows differ in them."""


class _Known(NamedTuple):
    """A schema that was checked, and the conversion of its columns."""

    schema: Any
    converter: Converter


class Reading:
    """Conversion of rows for some features. Columns and their types are checked once for each schema."""

    def __init__(self, features: Sequence[Feature]) -> None:
        self._features = tuple(features)
        self._types = Types(features)
        self._known: list[_Known] = []  # the latest first

    @property
    def columns(self) -> list[str]:
        """The columns that the features read."""
        return self._types.columns

    def batch(self, rows: Any) -> Batch:
        """Return a batch from an Arrow table, a record batch, or columns by name; a `Batch` is returned unchanged."""
        if isinstance(rows, Batch):
            return rows
        if isinstance(rows, Mapping):
            table = self._types.table(rows)
        elif isinstance(rows, pa.Table | pa.RecordBatch):
            table = rows
        else:
            table = Tables(rows).table  # a frame, or a TypeError
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        known = self._find(table.schema)
        if known is None:
            table = self._types.complete(self._selected(Tables(table)))
            known = self._find(table.schema) or self._checked(table)
        made, _ = known.converter.convert(Rows(table, IN_MEMORY, lambda row: f"row {row}"), "error")
        return made.to_batch()

    def _selected(self, given: Tables) -> Any:
        """Return the columns that the features read, or raise `DataError` for one that is missing."""
        try:
            given.open(self.columns)
        except MissingColumn as error:
            raise error.wanted_by_model() from None
        return given.table.select(self.columns)

    def _find(self, schema: Any) -> _Known | None:
        return next((known for known in self._known if known.schema.equals(schema)), None)

    def _checked(self, table: Any) -> _Known:
        converter = Converter(self._features, (), (), ())
        converter.check(Tables(table).open(self.columns))
        known = _Known(table.schema, converter)
        self._known = [known, *self._known[: KEPT - 1]]
        return known
