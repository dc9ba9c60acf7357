"""Synthetic clicks with a planted truth, so that the best possible result is known: as a source, and as files."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow.data.features import Feature, IdFeature, RawFeature
from sparrow.data.hashing import hash_integers
from sparrow.data.sources.base import BadRows, Reader, Rows, Source, check_columns, register_source
from sparrow.fields import Bounds, Count, check
from sparrow.metrics import ExactAUC


class Impressions(NamedTuple):
    """Impressions: ids (batch, fields), labels and true probabilities (batch,), counts (batch, counts)."""

    ids: npt.NDArray[np.int32]
    labels: npt.NDArray[np.float32]
    probabilities: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]


@register_source("clicks")
@dataclasses.dataclass(frozen=True)
class ClickLog(Source):
    """Impressions whose click probability is known: a factorization machine over Zipf-distributed ids.

    Every id of every field has a weight and a short vector, drawn once from the seed. An impression draws one id per
    field and some counts ``x``, its true log-odds are
    ``bias + Σ weight + Σ_{i<j} <vector_i, vector_j> + Σ slope * log(1 + x)``, and its label is a coin thrown with that
    probability. No model can rank better than the true probability does. A source of ``impressions`` rows, and batches
    without an end.

    >>> log = ClickLog(impressions=5000, fields=2, counts=1)
    >>> log.column_names()
    ['label', 'probability', 'count_0', 'id_0', 'id_1']
    >>> 0.5 < log.best_auc() < 1.0
    True
    >>> batch = log.batch(0, 4)
    >>> batch.ids.shape, batch.labels.shape, batch.probabilities.shape
    ((4, 2), (4,), (4,))

    Attributes:
      impressions: the number of rows.
      fields: categorical fields per impression.
      ids: distinct ids per field.
      factors: the length of the true vectors.
      exponent: the exponent of the Zipf distribution of ids.
      bias: the log-odds of an average impression.
      counts: numeric columns per impression, integers of 0 or more.
      seed: the seed of all draws.
      start: the number of the first chunk; another start gives other impressions of the same truth, to evaluate on.
      chunk_rows: rows made at a time, and the unit of shuffling.
    """

    impressions: Count = 1_000_000
    fields: Count = 8
    ids: Count = 1000
    factors: Count = 4
    exponent: float = 1.05
    bias: float = -1.0
    counts: Annotated[int, Bounds(at_least=0)] = 0
    seed: Annotated[int, Bounds(at_least=0)] = 0
    start: Annotated[int, Bounds(at_least=0)] = 0
    chunk_rows: Count = 16384

    def __post_init__(self) -> None:
        check(self, "source 'clicks': ")

    @functools.cached_property
    def _truth(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        rng = np.random.default_rng([self.seed, 1])
        weights = rng.normal(0.0, 1.2 / np.sqrt(self.fields), (self.fields, self.ids))
        pairs = self.fields * (self.fields - 1) / 2
        scale = (0.8 / np.sqrt(max(pairs, 1.0) * self.factors)) ** 0.5
        vectors = rng.normal(0.0, scale, (self.fields, self.ids, self.factors))
        popularity = np.cumsum(np.arange(1, self.ids + 1, dtype=np.float64) ** -self.exponent)
        return weights, vectors, popularity / popularity[-1]

    def batch(self, index: int, size: int) -> Impressions:
        """Return the ``index``-th batch of ``size`` impressions; the same one every time."""
        weights, vectors, cumulative = self._truth
        rng = np.random.default_rng([self.seed, 2, index])
        ids = np.searchsorted(cumulative, rng.random((size, self.fields))).astype(np.int32)
        field = np.arange(self.fields)
        chosen = vectors[field, ids]  # (size, fields, factors)
        pairs = 0.5 * (np.square(chosen.sum(axis=1)) - np.square(chosen).sum(axis=1)).sum(axis=1)
        counts, slopes = self._counts(index, size)
        log_odds = self.bias + weights[field, ids].sum(axis=1) + pairs + np.log1p(counts) @ slopes
        probabilities = 1.0 / (1.0 + np.exp(-log_odds))
        labels = (rng.random(size) < probabilities).astype(np.float32)
        return Impressions(ids, labels, probabilities, counts)

    def _counts(self, index: int, size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return counts with a long tail, and the true slopes of their logarithms; other draws do not change."""
        slopes = np.random.default_rng([self.seed, 3]).normal(0.0, 0.6 / np.sqrt(max(self.counts, 1)), self.counts)
        drawn = np.random.default_rng([self.seed, 4, index]).normal(1.0, 1.5, (size, self.counts))
        return np.exp(drawn).astype(np.int64), slopes

    def batches(self, count: int, size: int, start: int = 0) -> Iterator[Impressions]:
        """Yield ``count`` batches, the ``start``-th first."""
        for index in range(start, start + count):
            yield self.batch(index, size)

    def best_auc(self) -> float:
        """Return the AUC of the true probabilities on these impressions, which a model can beat only by luck."""
        metric = ExactAUC()
        reader, state = self.open(["label", "probability"]), metric.init()
        for table in reader.tables():
            state = metric.update(state, table["probability"].to_numpy(), table["label"].to_numpy())
        return float(metric.compute(state))

    def features(self, embedding_dim: int = 16) -> list[Feature]:
        counts: list[Feature] = [RawFeature(f"count_{i}", log=True) for i in range(self.counts)]
        ids = (f"id_{i}" for i in range(self.fields))
        return counts + [IdFeature(name, num_buckets=self.ids, embedding_dim=embedding_dim) for name in ids]

    def column_names(self) -> list[str]:
        counts = [f"count_{i}" for i in range(self.counts)]
        return ["label", "probability", *counts, *(f"id_{i}" for i in range(self.fields))]

    def open(self, columns: Sequence[str]) -> Reader:
        check_columns("generated clicks", columns, self.column_names())
        return ClickReader(self, columns)


class ClickReader(Reader):
    """Chunks of generated impressions."""

    def __init__(self, log: ClickLog, columns: Sequence[str]) -> None:
        self._log, self._columns = log, list(columns)
        self.num_chunks = -(-log.impressions // log.chunk_rows)
        kinds = {"label": pa.float32(), "probability": pa.float64(), "count": pa.int64(), "id": pa.int32()}
        self.schemas = [("generated clicks", {column: kinds[column.partition("_")[0]] for column in columns})]

    @property
    def num_rows(self) -> int:
        return self._log.impressions

    @property
    def fingerprint(self) -> str:
        return repr(self._log)

    def read(self, chunk: int, bad_rows: BadRows) -> Rows:
        first = chunk * self._log.chunk_rows
        rows = min(self._log.chunk_rows, self._log.impressions - first)
        table = _table(self._log.batch(self._log.start + chunk, self._log.chunk_rows)).slice(0, rows)
        return Rows(table.select(self._columns), "generated clicks", lambda row: f"row {first + row}")


def write_clicks(log: ClickLog, path: str | Path) -> None:
    """Write generated impressions to a Parquet file, one row group per chunk."""
    reader = log.open(log.column_names())
    with pq.ParquetWriter(str(path), reader.read(0, "error").table.schema) as writer:
        for table in reader.tables():
            writer.write_table(table)


def write_criteo(log: ClickLog, path: str | Path) -> None:
    """Write generated impressions in Criteo's format, which needs 13 counts and 26 fields. Zeros are left out.

    An id is written as 8 hexadecimal digits of the hash of its field and itself.
    """
    if (log.counts, log.fields) != (13, 26):
        raise ValueError(f"Criteo's format has 13 counts and 26 fields, got {log.counts} and {log.fields}")
    reader = log.open(log.column_names())
    with Path(path).open("w", newline="\n") as file:
        for table in reader.tables():
            columns = [table["label"].to_numpy().astype(np.int64).tolist()]
            columns += [[x or "" for x in table[f"count_{i}"].to_pylist()] for i in range(13)]
            for i in range(26):
                ids = hash_integers(table[f"id_{i}"].to_numpy().astype(np.int64) + (i << 40))
                columns.append([f"{value & 0xFFFFFFFF:08x}" for value in ids.tolist()])
            file.writelines("\t".join(map(str, row)) + "\n" for row in zip(*columns, strict=True))


def _table(batch: Impressions) -> Any:
    columns: dict[str, Any] = {"label": batch.labels, "probability": batch.probabilities}
    columns |= {f"count_{i}": batch.counts[:, i].copy() for i in range(batch.counts.shape[1])}
    return pa.table(columns | {f"id_{i}": batch.ids[:, i].copy() for i in range(batch.ids.shape[1])})
