"""Computed columns of strings: `EditDistance` and `RegexReplace`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.data.computed.base import Column, Computed, check_inputs, check_strings, column_of, register_computed
from sparrow.data.computed.pairs import texts_of
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

    def __post_init__(self) -> None:
        check_inputs(self, "first", "second")

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.first, self.second)

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
        check_inputs(self, "column")
        check_strings(self, "pattern")
        try:
            self._replaced(pa.array([""]))
        except pa.ArrowInvalid as error:
            raise ValueError(f"RegexReplace.pattern {self.pattern!r} cannot be read: {error}") from None

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.column,)

    def compute(self, columns: Any, problems: Problems) -> Any:
        return self._replaced(texts_of(column_of(self.column, columns, problems)))

    def _replaced(self, texts: Any) -> Any:
        return pc.replace_substring_regex(texts, pattern=self.pattern, replacement=self.replacement)
