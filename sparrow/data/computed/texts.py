"""Columns of strings: `EditDistance`, `RegexReplace`, and `Overlap` of a query and a title."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow import fields
from sparrow.data.computed.base import Column, Computed, column_of, register_computed
from sparrow.data.computed.pairs import read_keys, texts_of
from sparrow.data.errors import Problems
from sparrow.data.values import is_list


class _OfTexts(Computed):
    """A computed column whose inputs are single strings."""

    def refuse_input(self, column: str, kind: Any) -> str | None:
        if is_list(kind):
            return f"{self.words} single strings, the column holds {kind}"
        return super().refuse_input(column, kind)

    def holds_input(self, column: str) -> str:
        return "strings; may be missing"


@register_computed("edit_distance")
@dataclasses.dataclass(frozen=True)
class EditDistance(_OfTexts):
    """The least number of characters to insert, delete or replace to turn one string into the other.

    >>> batch = pa.RecordBatch.from_pydict({"a": ["sitting", "x", None], "b": ["kitten", "x", "y"]})
    >>> EditDistance("a", "b").compute(batch, Problems(3)).to_pylist()
    [3, 0, None]

    Attributes:
      first, second: the strings.
    """

    first: Column
    second: Column

    def compute(self, columns: Any, problems: Problems) -> Any:
        """Return int64; missing where a string is."""
        first, second = (texts_of(column_of(given, columns, problems)).to_pylist() for given in self.inputs)
        made = [None if a is None or b is None else _distance(a, b) for a, b in zip(first, second, strict=True)]
        return pa.array(made, pa.int64())


def _distance(a: str, b: str) -> int:
    """Return Levenshtein's distance, one row of its table at a time."""
    codes, places = np.array([ord(c) for c in b], np.int64), np.arange(len(b) + 1)
    row = places.copy()
    for character in a:
        changed = np.minimum(row[1:] + 1, row[:-1] + (codes != ord(character)))
        ahead = np.concatenate([[row[0] + 1], changed])
        row = np.minimum.accumulate(ahead - places) + places  # an insertion costs 1 for each place
    return int(row[-1])


@register_computed("regex_replace")
@dataclasses.dataclass(frozen=True)
class RegexReplace(_OfTexts):
    """Strings in which every match of a regular expression (RE2) is replaced.

    >>> batch = pa.RecordBatch.from_pydict({"title": ["iPhone 15, black"]})
    >>> RegexReplace("title", pattern="[^a-zA-Z ]", replacement="").compute(batch, Problems(1)).to_pylist()
    ['iPhone  black']

    Attributes:
      column: the strings.
      pattern: the regular expression, which takes time in proportion to the string.
      replacement: the string to put in its place; ``\\1`` is the first group.
    """

    column: Column
    _: dataclasses.KW_ONLY
    pattern: str
    replacement: str

    def __post_init__(self) -> None:
        super().__post_init__()
        fields.string("RegexReplace.pattern", self.pattern)
        try:
            self._replaced(pa.array([""]))
        except pa.ArrowInvalid as error:
            raise ValueError(f"RegexReplace.pattern {self.pattern!r} cannot be read: {error}") from None

    def compute(self, columns: Any, problems: Problems) -> Any:
        return self._replaced(texts_of(column_of(self.column, columns, problems)))

    def _replaced(self, texts: Any) -> Any:
        return pc.replace_substring_regex(texts, pattern=self.pattern, replacement=self.replacement)


Terms = Sequence[str]


def _common(terms: Terms, others: Terms) -> float:
    """Return the share of ``terms`` that are among ``others``."""
    known = set(others)
    return sum(term in known for term in terms) / len(terms) if terms else 0.0


def _index_of(query: Terms, title: Terms) -> float:
    for start in range(len(title) - len(query) + 1):
        if query and list(title[start : start + len(query)]) == list(query):
            return float(start)
    return -1.0


def _places(query: Terms, title: Terms) -> list[list[int]]:
    """Return the places of each distinct term of the query in the title; none for a term that is not there."""
    return [[i for i, word in enumerate(title) if word == term] for term in dict.fromkeys(query)]


def _min_cover(query: Terms, title: Terms) -> float:
    """Return the length of the shortest part of the title with all terms of the query; 0: a term is not there."""
    places = _places(query, title)
    if not places or not all(places):
        return 0.0
    lacking, best, begin = len(places), len(title), 0
    term_at = {place: term for term, found in enumerate(places) for place in found}
    counts = [0] * len(places)
    for end in range(len(title)):
        if (term := term_at.get(end)) is None:
            continue
        counts[term] += 1
        lacking -= counts[term] == 1
        while not lacking:
            best = min(best, end - begin + 1)
            if (left := term_at.get(begin)) is not None:
                counts[left] -= 1
                lacking += counts[left] == 0
            begin += 1
    return float(best)


def _distances(query: Terms, title: Terms) -> list[int] | None:
    """Return the least distance of each pair of matched terms; 0 where one is matched alone; None: none is."""
    places = [found for found in _places(query, title) if found]
    if not places:
        return None
    pairs = itertools.combinations(places, 2)
    return [min(abs(i - j) for i in a for j in b) for a, b in pairs] or [0]


def _by_distances(reduce: Callable[[list[int]], float]) -> Callable[[Terms, Terms], float]:
    def compute(query: Terms, title: Terms) -> float:
        found = _distances(query, title)
        return float(len(title) + 1 if found is None else reduce(found))

    return compute


METHODS: Final[Mapping[str, Callable[[Terms, Terms], float]]] = {
    "query_common_ratio": _common,
    "title_common_ratio": lambda query, title: _common(title, query),
    "is_contain": lambda query, title: float(_index_of(query, title) >= 0),
    "is_equal": lambda query, title: float(bool(query) and list(query) == list(title)),
    "index_of": _index_of,
    "proximity_min_cover": _min_cover,
    "proximity_min_dist": _by_distances(min),
    "proximity_max_dist": _by_distances(max),
    "proximity_avg_dist": _by_distances(lambda found: sum(found) / len(found)),
}


@register_computed("overlap")
@dataclasses.dataclass(frozen=True)
class Overlap(Computed):
    """How far the terms of a query are in a title; a missing or empty query or title has no terms.

    ====================  ==========================================================================================
    method                result
    ====================  ==========================================================================================
    query_common_ratio    the share of the query's terms that are in the title
    title_common_ratio    the share of the title's terms that are in the query
    is_contain            1 where the query stands in the title as a whole, term after term, else 0
    is_equal              1 where both have the same terms in the same order, else 0
    index_of              the place where the query as a whole begins in the title, from 0; -1: nowhere
    proximity_min_cover   the length of the shortest part of the title with all terms of the query; 0: one is lacking
    proximity_min_dist    the least distance between two different matched terms; 0: one is matched; length + 1: none
    proximity_max_dist    the largest of the least distances of all pairs of matched terms, with the same limits
    proximity_avg_dist    their mean, with the same limits
    ====================  ==========================================================================================

    >>> batch = pa.RecordBatch.from_pydict({"query": ["red shoes"], "title": ["red running shoes"]})
    >>> Overlap("query", "title", method="query_common_ratio", separator=" ").compute(batch, Problems(1)).to_pylist()
    [1.0]

    Attributes:
      query, title: lists of terms, or separated strings.
      method: one of the above.
      separator: the separator between the terms of one string.
    """

    may_be_lists = True
    query: Column
    title: Column
    _: dataclasses.KW_ONLY
    method: Literal[
        "query_common_ratio",
        "title_common_ratio",
        "is_contain",
        "is_equal",
        "index_of",
        "proximity_min_cover",
        "proximity_min_dist",
        "proximity_max_dist",
        "proximity_avg_dist",
    ]
    separator: str | None = None

    def holds_input(self, column: str) -> str:
        return "terms: lists, or strings with a separator; may be missing"

    def compute(self, columns: Any, problems: Problems) -> Any:
        """Return float64, never missing."""
        query, title = (self._terms(given, columns, problems) for given in self.inputs)
        method = METHODS[self.method]
        return pa.array([method(a, b) for a, b in zip(query, title, strict=True)], pa.float64())

    def _terms(self, given: Column, columns: Any, problems: Problems) -> list[list[str]]:
        terms: list[list[str]] = [[] for _ in range(columns.num_rows)]
        words, rows = read_keys(column_of(given, columns, problems), self.separator)
        for word, row in zip(words.to_pylist(), rows.tolist(), strict=True):
            terms[row].append(word)
        return terms
