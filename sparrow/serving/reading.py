"""`Reading`: rows as a request gives them, converted to a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sparrow.data import IN_MEMORY, Batch, Converter, DataError, Feature, MissingColumn, Tables, shown
from sparrow.data.sources import Rows
from sparrow.embedding import Ragged
from sparrow.serving.trained import Casts, cast, casts
from sparrow.serving.untyped import Types

KEPT: Final = 32
"""Schemas whose conversions stay in memory: requests of a few rows differ in them."""


class _Known(NamedTuple):
    """A schema that was checked, and the conversion of its columns."""

    schema: Any
    casts: Casts
    converter: Converter


class Reading:
    """Conversion of rows for some features. Columns and their types are checked once for each schema."""

    def __init__(self, features: Sequence[Feature], kinds: Mapping[str, str] = MappingProxyType({})) -> None:
        """``kinds``: whether columns of ids held integers or strings in training."""
        self._features = tuple(features)
        self._types = Types(features)
        self._kinds = {name: kind for name, kind in kinds.items() if name in self._types.columns}
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
        table = cast(table, known.casts)
        made, _ = known.converter.convert(Rows(table, IN_MEMORY, lambda row: f"row {row}"), "error")
        batch = made.to_batch()
        self._refuse_infinite(batch, table)
        return batch

    def _refuse_infinite(self, batch: Batch, table: Any) -> None:
        """Refuse numbers that 32 bits cannot hold: the model would answer with no number."""
        for feature in self._features:
            held = getattr(batch, feature.part)[feature.name]
            numbers = held.weights if feature.part == "ids" and isinstance(held, Ragged) else None
            if feature.part != "ids":
                numbers = held.values if isinstance(held, Ragged) else held
            if numbers is None or (finite := np.isfinite(numbers)).all():
                continue
            at = int(np.argmin(finite.reshape(len(numbers), -1).all(axis=1)))
            row = int(np.searchsorted(held.offsets, at, "right")) - 1 if isinstance(held, Ragged) else at
            value = shown(table[feature.columns[-1]][row].as_py())
            why = f"{value} is too large for feature '{feature.name}', which has 32 bits"
            raise DataError(why, IN_MEMORY, f"row {row}", feature.columns[-1])

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
        converter, wanted = Converter(self._features, (), (), ()), casts(self._kinds, table.schema)
        converter.check(Tables(cast(table.slice(0, 0), wanted)).open(self.columns))
        known = _Known(table.schema, wanted, converter)
        self._known = [known, *self._known[: KEPT - 1]]
        return known
