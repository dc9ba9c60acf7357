"""Words of columns: vocabularies built in one pass over the data, and collisions of hashed words."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow import fields
from sparrow.data.errors import DataError
from sparrow.data.features import Feature
from sparrow.data.hashing import modulo
from sparrow.data.sources.base import BadRows, Source
from sparrow.data.values import Parsed, element_type, flatten, is_text, plain
from sparrow.data.vocabulary import Vocabulary
from sparrow.embedding import U64
from sparrow.files import AnyPath, at

_MERGE_ROWS = 2**20  # counts are merged when this many have gathered, so that memory follows the distinct words


@dataclasses.dataclass(frozen=True)
class Counted:
    """The words of one column that were kept, the most frequent first, and the number of occurrences of each.

    ``distinct``: the number of distinct words, including the ones left out; ``missing``: entries that are missing or
    empty, and rows without any.
    """

    vocabulary: Vocabulary
    counts: tuple[int, ...]
    distinct: int
    missing: int


def build_vocabularies(
    source: Source,
    columns: Sequence[str] | Mapping[str, str | None],
    *,
    min_count: int = 1,
    max_words: int | None = None,
    bad_rows: BadRows = "error",
) -> dict[str, Counted]:
    """Count the words of columns in one pass and keep the frequent ones.

    >>> from sparrow.data import Tables
    >>> source = Tables({"genres": ["Action|Comedy", "Comedy", None], "year": [1999, 1999, 2001]})
    >>> built = build_vocabularies(source, {"genres": "|", "year": None})
    >>> built["genres"].vocabulary.words, built["genres"].counts, built["genres"].missing
    (('Comedy', 'Action'), (2, 1), 1)
    >>> built["year"].vocabulary.words
    ('1999', '2001')

    Args:
      source: the data.
      columns: names of columns of strings, integers or lists of these; or a mapping from name to the separator
        between the words of a string (None: a string is one word).
      min_count: words that occur less often are left out.
      max_words: the most words to keep; None: all.
      bad_rows: the policy for lines that cannot be split into columns: "error" or "skip".

    Returns:
      The counts by column. Words of equal count are in alphabetical order, for any order of the files.
    """
    fields.integer("min_count", min_count)
    fields.integer("max_words", 1 if max_words is None else max_words)
    separators = dict(columns) if isinstance(columns, Mapping) else dict.fromkeys(columns)
    if not separators:
        raise ValueError("name at least one column to build a vocabulary from")
    reader = source.open(list(separators))
    for column in separators:
        file, schema = reader.schemas[0]
        if not is_text(kind := element_type(schema[column])) and not pa.types.is_integer(kind):
            why = f"a vocabulary is made of strings or integers, the column holds {schema[column]}"
            raise DataError(why, file, column=column)
    counters, without = {column: Counter(pa.large_string()) for column in separators}, collections.Counter[str]()
    for table in reader.tables(bad_rows):
        for column, separator in separators.items():
            for flat in (flatten(piece, separator) for piece in table[column].chunks):
                counters[column].add(plain(flat.entries).cast(pa.large_string()))
                without[column] += int((flat.lengths == 0).sum())
    return {name: _kept(own.merged(), name, min_count, max_words, without[name]) for name, own in counters.items()}


def write_vocabularies(
    source: Source, columns: Sequence[str] | Mapping[str, str | None], folder: str | AnyPath, **options: Any
) -> dict[str, tuple[AnyPath, Counted]]:
    """Call `build_vocabularies`, and write each vocabulary to ``<column>.txt`` in ``folder``, one word a line.

    Args:
      source: the data.
      columns: the columns, as in `build_vocabularies`.
      folder: the folder to write; made if it does not exist.
      **options: min_count, max_words and bad_rows of `build_vocabularies`.

    Returns:
      By column: the file, to give to a feature as its vocabulary, and the counts.
    """
    for column in columns:
        if PurePath(column).name != column:
            raise ValueError(
                f"column '{column}' cannot be the name of a file; build its vocabulary and save it yourself"
            )
    built = build_vocabularies(source, columns, **options)
    at(folder).mkdir(parents=True, exist_ok=True)
    written = {}
    for column, counted in built.items():
        path = at(folder) / f"{column}.txt"
        counted.vocabulary.save(path)
        written[column] = (path, counted)
    return written


class Counter:
    """Counts of values, merged from time to time, so that memory follows the distinct ones."""

    def __init__(self, kind: Any) -> None:
        """Count values of an Arrow type."""
        self._parts = [pa.table({"value": pa.array([], kind), "count": pa.array([], pa.int64())})]
        self._gathered = self._merged = 0

    def add(self, values: Any) -> None:
        counted = pc.value_counts(values)
        self._parts.append(pa.table({"value": counted.field("values"), "count": counted.field("counts")}))
        self._gathered += len(counted)
        if self._gathered > max(_MERGE_ROWS, 2 * self._merged):
            self.merged()

    def merged(self) -> Any:
        """Return a table of the distinct values, in no order, and their counts."""
        merged = pa.concat_tables(self._parts).group_by("value").aggregate([("count", "sum")])
        self._parts = [merged.rename_columns({"value": "value", "count_sum": "count"})]
        self._merged = self._gathered = merged.num_rows
        return self._parts[0]


def _kept(merged: Any, column: str, min_count: int, max_words: int | None, without: int) -> Counted:
    """Return the frequent words; ``without``: the rows that have none."""
    empty: Any = pc.equal(pc.fill_null(merged["value"], ""), pa.scalar("", pa.large_string()))
    missing = pc.sum(merged.filter(empty)["count"]).as_py() or 0
    words = merged.filter(pc.invert(empty))
    kept = words.filter(pc.greater_equal(words["count"], pa.scalar(min_count, pa.int64())))
    kept = kept.sort_by([("count", "descending"), ("value", "ascending")])
    kept = kept if max_words is None else kept.slice(0, max_words)
    if not words.num_rows:
        raise DataError("there is no word to count: the data holds no rows, or no values", column=column)
    if not kept.num_rows:
        raise DataError(f"no word occurs {min_count} times or more; lower min_count", column=column)
    vocabulary = Vocabulary(kept["value"].to_pylist(), f"column '{column}'")
    return Counted(vocabulary, tuple(kept["count"].to_pylist()), words.num_rows, without + int(missing))


EXAMPLES: Final = 65_536
"""The most examples that are looked at."""


class Collisions(NamedTuple):
    """The words of a hashed feature in the first examples.

    Its distinct words have some rows of the buckets of its table, fewer than words where some share one.
    """

    feature: str
    words: int
    rows: int
    buckets: int
    examples: int

    def __str__(self) -> str:
        return (
            f"feature '{self.feature}': {self.words:,} distinct values share {self.rows:,} of {self.buckets:,} rows in "
            f"the first {self.examples:,} examples; vocabulary: auto or a larger hash_bucket_size keeps them apart"
        )


def count_collisions(source: Source, features: Sequence[Feature], bad_rows: BadRows = "error") -> list[Collisions]:
    """Return the words and rows of each hashed feature in the first chunk of a source.

    >>> from sparrow.data import IdFeature, Tables
    >>> names = Tables({"name": [f"name {i}" for i in range(21)]})
    >>> print(count_collisions(names, [IdFeature("name", hash_bucket_size=40, embedding_dim=4)])[0])
    feature 'name': 21 distinct values share 17 of 40 rows in the first 21 examples; vocabulary: auto or ...
    """
    wanted = {feature.name: words for feature in features if (words := feature.hashed_words) is not None}
    if not wanted:
        return []
    reader = source.open(list(dict.fromkeys(column for column, _, _ in wanted.values())))
    if not reader.num_chunks:
        return []
    table = reader.read(0, bad_rows).table.slice(0, EXAMPLES).combine_chunks()
    made = []
    for name, (column, buckets, parse) in wanted.items():
        keys = _distinct(parse(table[column].combine_chunks()))
        made.append(Collisions(name, len(keys), len(np.unique(modulo(keys, buckets))), buckets, table.num_rows))
    return made


def _distinct(parsed: Parsed) -> U64:
    there = np.ones(len(parsed.values), np.bool_)
    for absent in (parsed.missing, parsed.bad):
        there &= True if absent is None else ~absent
    return np.asarray(np.unique(parsed.values[there]))
