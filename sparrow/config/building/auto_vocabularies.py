"""``vocabulary: auto``: the words of the data to train on, the most frequent first."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sparrow.config.sections.config import Config
from sparrow.data import AUTO, Vocabulary, build_vocabularies
from sparrow.errors import ConfigError


def fill_vocabularies(config: Config) -> list[str]:
    """Build the vocabularies of features with ``vocabulary: auto`` that have none yet; return a line on each table.

    Features that share a table share its words. A run keeps them, so that this happens once.
    """
    data = config.data
    features: list[Any] = [] if data is None else [f for f in data.features if getattr(f, "vocabulary", None) == AUTO]
    features = [feature for feature in features if "words" not in vars(feature)]
    if data is None or not features:
        return []
    for feature in features:
        if feature.compute is not None:
            place = ("data", "features", data.features.index(feature), "vocabulary")
            raise ConfigError("auto counts the words of a column, and compute has none; list the words", at=place)
    notes = []
    by_table: dict[str, list[Any]] = {}
    for feature in features:
        by_table.setdefault(feature.table or feature.name, []).append(feature)
    counts: dict[tuple[str, str | None], Any] = {}
    for separator in dict.fromkeys(feature.separator for feature in features):
        columns = {feature.id_column: separator for feature in features if feature.separator == separator}
        built = build_vocabularies(data.train_rows, columns, bad_rows=data.bad_rows)
        counts |= {(column, separator): counted for column, counted in built.items()}
    for table, of_table in by_table.items():
        total: Counter[str] = Counter()
        for feature in of_table:
            counted = counts[feature.id_column, feature.separator]
            total.update(dict(zip(counted.vocabulary.words, counted.counts, strict=True)))
        words = sorted(total, key=lambda word: (-total[word], word))
        vocabulary = Vocabulary(words, f"table '{table}', built from the data to train on")
        for feature in of_table:
            feature.hold_words(vocabulary)
        notes.append(f"vocabulary of table '{table}': {len(words):,} words of the data to train on")
    return notes
