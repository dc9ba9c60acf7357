"""`Traffic`: the lookups of a run by row of its tables, and by id of dynamic ones.

Counting a batch is a sort of its ids. It is done on the host while the device works, and only while all
of it takes no more than a set share of the time. The counts of a batch are added up when a step takes it, so that a
checkpoint holds the traffic of exactly the steps that were made. Memory does not grow with the run: see `row_counts`.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.config import WIDE, Config, ConfigError, assemble
from sparrow.data import DataError, Feature, Problems, Vocabulary
from sparrow.embedding import Embedder, Held, PackedBatch, Ragged, RoutedBatch, SavedIds, TableSpec, hash_strings
from sparrow.kernels.ids import numbers_of
from sparrow.registry import nearest
from sparrow.runs.recorded.row_counts import IdCounts, RowCounts, rows_counted

HOTTEST: Final = 20
"""The number of ids that are listed by name."""
RANKS: Final = 64
"""The number of points of the curve of lookups by rank."""


class LookedUp(NamedTuple):
    """The rows of one table in one batch, or the ids of a dynamic one: each once, ascending, and its lookups."""

    rows: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


Counted = dict[str, LookedUp]
"""The lookups of one batch, by table."""


def count(embedder: Embedder, packed: PackedBatch | RoutedBatch) -> Counted:
    """Return the number of lookups of each row in one batch. Padding and ignored ids are not counted.

    >>> import sparrow as sp
    >>> spec = sp.TableSpec(name="items", vocabulary_size=9, embedding_dim=2, optimizer=sp.rules.SGD(0.1))
    >>> emb = sp.Embedder([sp.FeatureSpec(name="item", table_spec=spec)])
    >>> count(emb, emb.pack({"item": [[5, 2], [], [5]]}))["items"]
    LookedUp(rows=array([2, 5]), counts=array([1, 2]))
    """
    counted: Counted = {}
    for stack in embedder.stacks:
        if stack.is_dynamic:  # their rows are known on the device alone: raw ids are counted
            words, tables = _raw(packed, stack.name)
            for number, table in enumerate(stack.tables):
                raw = numbers_of(words[tables == number]).view(np.int64)
                counted[table.name] = LookedUp(*np.unique(raw, return_counts=True))
            continue
        ids = np.sort(_ids(packed, stack.name))
        ids = ids[slice(*np.searchsorted(ids, (0, stack.num_rows)))]  # the rest is padding, and ids to ignore
        first = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]])) if len(ids) else np.zeros(0, np.int64)
        rows, counts = ids[first].astype(np.int64), np.diff(first, append=len(ids))
        for table in stack.tables:
            span = stack.rows_of(table.name)
            part = slice(*np.searchsorted(rows, (span.start, span.stop)))
            counted[table.name] = LookedUp(rows[part] - span.start, counts[part])
    return counted


def _raw(packed: PackedBatch | RoutedBatch, stack: str) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int32]]:
    """Return the halves of raw ids, and the number of each one's table, below 0 where it is absent."""
    if isinstance(packed, RoutedBatch):
        parts = packed.routed[stack].raw or []
        return np.concatenate([own.words for own in parts]), np.concatenate([own.segments for own in parts])
    return np.asarray(packed.raw[stack]), np.asarray(packed.lookups[stack].ids)


def _ids(packed: PackedBatch | RoutedBatch, stack: str) -> npt.NDArray[np.int32]:
    if isinstance(packed, RoutedBatch):
        return np.concatenate([part.ids for part in packed.routed[stack].parts])
    return np.asarray(packed.lookups[stack].ids)


class _Table:
    """The traffic of one table."""

    def __init__(self, spec: TableSpec) -> None:
        rows = spec.vocabulary_size
        self.rows: RowCounts = rows_counted(rows) if spec.dynamic is None else IdCounts(rows)
        self.least, self.most = 0, 0  # unique ids in a batch
        self.unique = 0  # summed over batches

    def add(self, counted: LookedUp, is_first: bool) -> None:
        self.rows.add(*counted)
        unique = len(counted.rows)
        self.least, self.most = unique if is_first else min(self.least, unique), max(self.most, unique)
        self.unique += unique

    def summary(self, batches: int) -> dict[str, Any]:
        rows = self.rows
        ids, counts = rows.hottest()
        ranks = np.unique(np.geomspace(1, max(len(counts), 1), RANKS).astype(np.int64))[: len(counts)]
        percent = max(rows.num_rows // 100, 1)
        hot = min(percent, len(counts)) if rows.error else percent
        return {
            "rows": rows.num_rows,
            "lookups": rows.lookups,
            "touched": rows.touched,
            "unique": {"mean": self.unique / max(batches, 1), "least": self.least, "most": self.most},
            "hottest": [[int(i), int(c)] for i, c in zip(ids[:HOTTEST], counts[:HOTTEST], strict=True)],
            "by_rank": [[int(rank), int(counts[rank - 1])] for rank in ranks],
            "hot": {"rows": hot, "lookups": int(counts[:hot].sum())},
            "error": rows.error,
        }


class Traffic:
    """The traffic of all tables since the run began. `state` and `restore` are for checkpoints.

    Args:
      embedder: the embedder with the tables.
      share: the share of the time that counting may take; 1: every batch is counted.
      clock: the time in seconds.
    """

    def __init__(self, embedder: Embedder, share: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._embedder, self._share, self._clock = embedder, share, clock
        self._tables = {name: _Table(spec) for name, spec in embedder.tables.items()}
        self.batches = self.counted = 0
        self._began: float | None = None
        self._counting = self._adding = 0.0  # seconds: of the thread that makes batches, and of the one that steps

    @property
    def nbytes(self) -> int:
        """The bytes of memory, at most."""
        return sum(table.rows.nbytes for table in self._tables.values())

    def sample(self, packed: PackedBatch | RoutedBatch) -> Counted | None:
        """Return the counts of a batch that is still on the host; None where there is no time for it."""
        now = self._clock()
        if self._began is None:
            self._began = now
        if self._share < 1 and self._counting + self._adding > self._share * (now - self._began):
            return None
        counted = count(self._embedder, packed)
        self._counting += self._clock() - now
        return counted

    def add(self, counted: Counted | None) -> None:
        """Add one batch of a step, and its counts where it was counted."""
        self.batches += 1
        if counted is None:
            return
        began = self._clock()
        for name, rows in counted.items():
            self._tables[name].add(rows, is_first=not self.counted)
        self.counted += 1
        self._adding += self._clock() - began

    def summary(self) -> dict[str, Any]:
        """Return plain values for JSON, for the report."""
        began = self._clock()
        tables = {name: table.summary(self.counted) for name, table in self._tables.items()}
        self._adding += self._clock() - began
        return {"batches": self.batches, "counted": self.counted, "tables": tables}

    def state(self) -> dict[str, npt.NDArray[Any]]:
        arrays: dict[str, npt.NDArray[Any]] = {"batches": np.array([self.batches, self.counted], np.int64)}
        for name, table in self._tables.items():
            arrays[f"{name}/unique"] = np.array([table.unique, table.least, table.most], np.int64)
            arrays |= {f"{name}/{key}": array for key, array in table.rows.state().items()}
        return arrays

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue from the arrays of `state`. Tables that it lacks, or of another size, begin from zero."""
        if "batches" not in state:  # of a run that counted nothing
            return
        self.batches, self.counted = (int(value) for value in state["batches"])
        for name, table in self._tables.items():
            held = {key.removeprefix(f"{name}/"): array for key, array in state.items() if key.startswith(f"{name}/")}
            if held and table.rows.restore(held):
                table.unique, table.least, table.most = (int(value) for value in held["unique"])


@dataclasses.dataclass(frozen=True)
class TableIds:
    """The ids of one table.

    Attributes:
      table: its name.
      held: how many there are.
      most: ids that are looked up most, with their counts; empty unless evict, as "lfu", counts them.
    """

    table: str
    held: Held
    most: list[tuple[str, int]]

    def lines(self) -> Iterator[str]:
        """Return the counts, and a line for each of the most frequent ids."""
        yield f"{self.table}: {sentence(self.held._asdict())}"
        width = max((len(name) for name, _ in self.most), default=0)
        yield from (f"  {name:>{width}}  {count:,} lookups" for name, count in self.most)


def sentence(held: dict[str, int]) -> str:
    """Return the counts in words, without zeros."""
    words = {
        "waiting": "waiting for a row",
        "admitted": "admitted",
        "evicted": "evicted",
        "expired": "came back after they had expired",
        "refused": "lookups found no free row",
        "forgotten": "forgotten while they waited",
    }
    others = [f"{held[name]:,} {text}" for name, text in words.items() if held[name]]
    return ", ".join([f"{held['used']:,} of {held['rows']:,} rows used", *others])


def with_ids(summary: dict[str, Any], held: Mapping[str, Held]) -> dict[str, Any]:
    """Return the summary of `Traffic` with the counts of dynamic tables."""
    counts = {name: {"ids": own._asdict(), "ids_in_words": sentence(own._asdict())} for name, own in held.items()}
    return {**summary, "vocabularies": counts} if counts else summary


def table_ids(folder: str | Path, tables: Sequence[str] = (), most: int = 10) -> list[TableIds]:
    """Return the ids of the dynamic tables of a run's newest checkpoint; all tables, unless ``tables`` are named."""
    from sparrow.checkpoint import ids_of
    from sparrow.runs.saved.loading import all_damaged, config_of, opened

    for saved in opened(folder, log=lambda _: None):
        specs = {spec.table_spec.name: spec.table_spec for spec in assemble(config_of(saved)).specs}
        dynamic = {name: spec for name, spec in specs.items() if spec.dynamic is not None}
        if not dynamic:
            raise ConfigError(f"{folder}: no table of this run has a dynamic vocabulary")
        for name in tables:
            if name not in dynamic:
                raise ConfigError(f"unknown table '{name}': {nearest(name, dynamic)}")
        arrays = saved.arrays()
        held = {name: ids_of(arrays, name) for name in tables or dynamic}
        return [TableIds(name, own.held(dynamic[name]), _most(own, most)) for name, own in held.items()]
    raise all_damaged(folder)


def _most(held: SavedIds, most: int) -> list[tuple[str, int]]:
    """Return the ids that are looked up most, as signed integers; strings are known by their hash alone."""
    rows = np.argsort(-held.counts.astype(np.int64), kind="stable")[:most]
    rows = rows[(held.counts[rows] > 0) & (held.last[rows] >= 0)]
    ids = np.ascontiguousarray(held.ids[rows]).view(np.int64).reshape(-1)
    return [(str(id_), int(count)) for id_, count in zip(ids.tolist(), held.counts[rows].tolist(), strict=True)]


SAMPLE: Final = 100_000
"""Rows of the training data that are searched for the words of hashed ids."""
UNKNOWN: Final = "unknown"

Words = dict[str, dict[int, str]]
"""By table: the words of rows."""


def hot_words(config: Config, rows: Mapping[str, Sequence[int]]) -> Words:
    """Return the words of rows by table, or of the ids of a dynamic one; those without a known word are left out.

    A word of a vocabulary is exact. Where ids are hashed, it is the most frequent one among the first rows of the
    training data, with the number of other words that share its row.
    """
    found: Words = {}
    features = assemble(config).features
    for table, wanted in rows.items():
        for feature in features:
            use = feature.table_use
            if use is not None and use.table in (table, table.removesuffix(WIDE)) and wanted:
                words = _known(feature, wanted) or _hashed(config, feature, wanted)
                found[table] = {**words, **found.get(table, {})}
    return found


def _known(feature: Feature, wanted: Sequence[int]) -> dict[int, str]:
    """Return the words of a vocabulary; the row after the last one is that of unknown ids."""
    if isinstance(words := feature.words, Vocabulary):
        by_row: dict[int, list[str]] = {}
        for at, word in enumerate(words.words):
            by_row.setdefault(at if words.rows is None else int(words.rows[at]), []).append(word)
        return {row: _named(by_row[row]) if row in by_row else UNKNOWN for row in wanted}
    buckets = getattr(feature, "num_buckets", None)
    return {} if buckets is None else {row: str(row) if row < buckets else UNKNOWN for row in wanted}


def _hashed(config: Config, feature: Feature, wanted: Sequence[int]) -> dict[int, str]:
    use = feature.table_use
    is_dynamic = use is not None and use.dynamic is not None
    is_hashed = is_dynamic or getattr(feature, "hash_bucket_size", None) is not None
    if not is_hashed or len(feature.columns) != 1 or config.data is None:
        return {}
    column = feature.columns[0]
    try:
        values = _entries(config.data.train, column, getattr(feature, "separator", None))
        counted = pc.value_counts(values)
        counts = np.asarray(counted.field("counts"))
        order = np.argsort(-counts, kind="stable")
        words = counted.field("values").take(pa.array(order))
        if is_dynamic:
            rows = np.asarray(hash_strings(words)).astype(np.uint64).view(np.int64).tolist()
        else:
            rows = _rows(feature.convert(pa.RecordBatch.from_arrays([words], [column]), Problems(len(words))))
    except (DataError, OSError, pa.ArrowException):
        return {}
    by_row: dict[int, list[str]] = {}
    for row, word in zip(rows, words.to_pylist(), strict=True):
        if row in wanted:
            by_row.setdefault(row, []).append(str(word))
    return {row: _named(words) for row, words in by_row.items()}


def _entries(source: Any, column: str, separator: str | None) -> Any:
    reader = source.open([column])
    tables: list[Any] = []
    while len(tables) < reader.num_chunks and sum(table.num_rows for table in tables) < SAMPLE:
        tables.append(reader.read(len(tables), "skip").table)
    values = pa.concat_tables(tables)[column].combine_chunks().drop_null() if tables else pa.nulls(0, pa.string())
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    while hasattr(values, "flatten") and pa.types.is_nested(values.type):
        values = values.flatten()
    if separator is not None and not pa.types.is_integer(values.type):
        values = pc.split_pattern(values, separator).flatten()
    return values.drop_null()


def _rows(made: Any) -> list[int]:
    if not isinstance(made, Ragged):
        return [int(row) for row in np.asarray(made)]
    offsets, values = np.asarray(made.offsets), np.asarray(made.values)
    return [int(values[at]) if at < end else -1 for at, end in itertools.pairwise(offsets)]


def _named(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{words[0]} and {len(words) - 1} more"
