"""The words of the hottest rows, for the report: people know an id by its name, not by its row."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.config import Config, assemble
from sparrow.data import DataError, Feature, Problems, Vocabulary
from sparrow.embedding import Ragged, hash_strings

SAMPLE: Final = 100_000
"""Rows of the training data that are searched for the words of hashed ids."""
TWIN: Final = "_wide"
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
            if use is not None and use.table in (table, table.removesuffix(TWIN)) and wanted:
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
    """Return the entries of a column in the first rows of a source."""
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
