"""Collisions of hashed features: distinct words that share a row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from sparrow.data.features import Feature
from sparrow.data.features.mapped import MappedIds
from sparrow.data.hashing import hashed, modulo
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
    wanted = [f for f in features if isinstance(f, MappedIds) and f.hash_bucket_size is not None and f.compute is None]
    if not wanted:
        return []
    reader = source.open(list(dict.fromkeys(feature.id_column for feature in wanted)))
    if not reader.num_chunks:
        return []
    table = reader.read(0, bad_rows).table.slice(0, EXAMPLES).combine_chunks()
    return [_counted(feature, table[feature.id_column].combine_chunks()) for feature in wanted]


def _counted(feature: MappedIds, column: Any) -> Collisions:
    parsed, buckets = hashed(flatten(column, feature.separator).entries, feature.as_integer), feature.hash_bucket_size
    assert buckets is not None  # only such features are counted
    there = np.ones(len(parsed.values), np.bool_)
    for absent in (parsed.missing, parsed.bad):
        there &= True if absent is None else ~absent
    words = np.unique(parsed.values[there])
    return Collisions(feature.name, len(words), len(np.unique(modulo(words, buckets))), buckets, len(column))
