"""Collisions of hashed features: distinct words that share a row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from sparrow.data.features import Feature
from sparrow.data.features.base import HashedWords
from sparrow.data.hashing import modulo
from sparrow.data.keys import hashed
from sparrow.data.sources.base import BadRows, Source
from sparrow.data.values import flatten

EXAMPLES: Final = 65_536
"""The most examples that are looked at."""


class Collisions(NamedTuple):
    """The words of a hashed feature in the first examples.

    Attributes:
      feature: its name.
      words: the distinct words.
      rows: the rows of its table that they have; fewer than words where some share one.
      buckets: the rows of the table.
      examples: the examples that were looked at.
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
    reader = source.open(list(dict.fromkeys(words.column for words in wanted.values())))
    if not reader.num_chunks:
        return []
    table = reader.read(0, bad_rows).table.slice(0, EXAMPLES).combine_chunks()
    return [_counted(name, kind, table[kind.column].combine_chunks(), table.num_rows) for name, kind in wanted.items()]


def _counted(name: str, kind: HashedWords, column: Any, examples: int) -> Collisions:
    parsed = hashed(flatten(column, kind.separator).entries, kind.as_integer)
    there = np.ones(len(parsed.values), np.bool_)
    for absent in (parsed.missing, parsed.bad):
        there &= True if absent is None else ~absent
    words = np.unique(parsed.values[there])
    rows = np.unique(modulo(words, kind.buckets))
    return Collisions(name, len(words), len(rows), kind.buckets, examples)
