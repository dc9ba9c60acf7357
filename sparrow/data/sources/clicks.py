"""Synthetic clicks as a source, and as Parquet files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparrow.data.sources.base import BadRows, Reader, Rows, Source, check_columns, register_source
from sparrow.data.synthetic import Clicks


@register_source("clicks")
@dataclasses.dataclass(frozen=True)
class ClickLog(Source):
    """Generated impressions with a known click probability: columns label, probability, id_0, id_1, ...

    >>> ClickLog(impressions=100, fields=2).column_names()
    ['label', 'probability', 'id_0', 'id_1']

    Attributes:
      impressions: how many rows there are.
      fields, ids, factors, exponent, bias, seed: as in `Clicks`, whose ``rows`` are called ids here.
      start: number of the first chunk; another start gives other impressions of the same truth, to evaluate on.
      chunk_rows: rows made at a time, and the unit of shuffling.
    """

    impressions: int
    fields: int = 8
    ids: int = 1000
    factors: int = 4
    exponent: float = 1.05
    bias: float = -1.0
    seed: int = 0
    start: int = 0
    chunk_rows: int = 16384

    def __post_init__(self) -> None:
        for field in ("impressions", "fields", "ids", "factors", "chunk_rows"):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"source 'clicks': {field} must be a whole number of at least 1, got {value!r}")

    @property
    def truth(self) -> Clicks:
        """The generator."""
        return Clicks(self.fields, self.ids, self.factors, self.exponent, self.bias, self.seed)

    def column_names(self) -> list[str]:
        """Label, true probability, and the ids."""
        return ["label", "probability", *(f"id_{i}" for i in range(self.fields))]

    def open(self, columns: Sequence[str]) -> Reader:
        """Checks the columns."""
        check_columns("generated clicks", columns, self.column_names())
        return ClickReader(self, columns)


class ClickReader(Reader):
    """Chunks of generated impressions."""

    def __init__(self, log: ClickLog, columns: Sequence[str]) -> None:
        self._log = log
        self._truth = log.truth
        self._columns = list(columns)

    @property
    def num_chunks(self) -> int:
        """Batches of the generator."""
        return -(-self._log.impressions // self._log.chunk_rows)

    @property
    def fingerprint(self) -> str:
        """All that the impressions depend on."""
        return repr(self._log)

    @property
    def schemas(self) -> Sequence[tuple[str, dict[str, Any]]]:
        """Float labels and probabilities, integer ids."""
        kinds = {"label": pa.float32(), "probability": pa.float64()}
        return [("generated clicks", {column: kinds.get(column, pa.int32()) for column in self._columns})]

    def read(self, chunk: int, bad_rows: BadRows) -> Rows:
        """One batch of the generator."""
        first = chunk * self._log.chunk_rows
        rows = min(self._log.chunk_rows, self._log.impressions - first)
        table = _table(self._truth.batch(self._log.start + chunk, self._log.chunk_rows)).slice(0, rows)
        return Rows(table.select(self._columns), "generated clicks", lambda row: f"row {first + row}")


def write_clicks(log: ClickLog, path: str | Path) -> None:
    """Writes generated impressions to a Parquet file, one row group per chunk."""
    reader = log.open(log.column_names())
    with pq.ParquetWriter(str(path), reader.read(0, "error").table.schema) as writer:
        for chunk in range(reader.num_chunks):
            writer.write_table(reader.read(chunk, "error").table)


def _table(batch: Clicks.Batch) -> Any:
    columns = {"label": batch.labels, "probability": batch.probabilities}
    return pa.table(columns | {f"id_{i}": batch.ids[:, i].copy() for i in range(batch.ids.shape[1])})
