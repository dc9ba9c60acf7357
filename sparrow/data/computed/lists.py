"""Columns of lists: `Each` computes element by element, `BoolMask` takes some of them, `Combine` makes one number."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow import fields
from sparrow.data.computed.base import Column, Computed, column_of, name_of, register_computed
from sparrow.data.computed.pairs import Combiner, combined, listed, texts_of
from sparrow.data.errors import Problems
from sparrow.data.values import elements_of, flatten, is_list, is_text, plain


@register_computed("each")
@dataclasses.dataclass(frozen=True)
class Each(Computed):
    """A computed column, element by element of sequences; columns that are no sequences are the same for all elements.

    >>> from sparrow.data import Expr
    >>> batch = pa.RecordBatch.from_pydict({"now": [10, 20], "times": ["7;9", "12"]})
    >>> Each(Expr("now - times"), sequences=("times",), separator=";").compute(batch, Problems(2)).to_pylist()
    [[3.0, 1.0], [8.0]]

    Attributes:
      compute_each: the column to compute for each element.
      sequences: the columns that are sequences: lists, or strings with a separator. They have one length in a row.
      separator: the separator between the elements of one string.
    """

    compute_each: Computed
    _: dataclasses.KW_ONLY
    sequences: tuple[str, ...]
    separator: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sequences:
            raise ValueError("Each.sequences must name at least one column")
        for name in self.sequences:
            if name not in self.compute_each.columns:
                read = ", ".join(self.compute_each.columns)
                raise ValueError(f"Each.sequences names '{name}', which is not read; the columns are: {read}")

    def refuse(self, column: str, kind: Any) -> str | None:
        """Refuse sequences that are neither lists nor separated strings, and elements that the inner one refuses."""
        if column not in self.sequences:
            return self.compute_each.refuse(column, kind)
        if is_list(kind):
            return self.compute_each.refuse(column, kind.value_type)
        if is_text(kind) and self.separator is not None:
            return self.compute_each.refuse(column, kind)
        return f"'each' reads sequences: lists, or strings with a separator, the column holds {kind}"

    def holds(self, column: str) -> str:
        inner = self.compute_each.holds(column)
        return f"sequences of: {inner}" if column in self.sequences else inner

    def is_single(self, column: str) -> bool:
        return column not in self.sequences and self.compute_each.is_single(column)

    def compute(self, columns: Any, problems: Problems) -> Any:
        found = elements_of(columns, self.columns, self.sequences, self.separator, problems)
        if found is None:
            return pa.nulls(columns.num_rows, pa.large_list(pa.float64()))
        inner = Problems(len(found.rows))
        made = self.compute_each.compute(found.batch, inner)
        problems.add_inner(inner, found.rows)
        return pa.LargeListArray.from_arrays(found.offsets, made)


@register_computed("bool_mask")
@dataclasses.dataclass(frozen=True)
class BoolMask(Computed):
    """The elements whose mark is true: "true", "1" or a number that is not 0.

    >>> batch = pa.RecordBatch.from_pydict({"items": ["7,8,9"], "valid": ["true,false,true"]})
    >>> BoolMask("items", "valid", separator=",").compute(batch, Problems(1)).to_pylist()
    [['7', '9']]

    Attributes:
      column: lists, or separated strings.
      mask: as many marks.
      separator: the separator between the elements of one string.
    """

    may_be_lists = True
    column: Column
    mask: Column
    _: dataclasses.KW_ONLY
    separator: str | None = None

    def holds_input(self, column: str) -> str:
        return "lists" if column == self.column else f"as many marks, true or false, as values of '{self.column}'"

    def compute(self, columns: Any, problems: Problems) -> Any:
        count = columns.num_rows
        values, marks = (flatten(column_of(given, columns, problems), self.separator) for given in self.inputs)
        rows, marked = values.rows, marks.rows
        have, want = np.bincount(marked, minlength=count), np.bincount(rows, minlength=count)
        if (differ := np.flatnonzero(have != want)).size:
            problems.add(
                self.columns[-1],
                differ,
                lambda i: f"{want[differ[i]]} values need as many marks, got {have[differ[i]]}",
            )
            return pa.nulls(count, pa.large_list(pa.string()))
        words = pc.utf8_lower(texts_of(marks.entries)).to_pylist()
        keep = np.array([word not in (None, "", "false", "0", "0.0") for word in words], np.bool_)
        return listed(plain(values.entries).filter(pa.array(keep)), rows[keep], count)


@register_computed("combine")
@dataclasses.dataclass(frozen=True)
class Combine(Computed):
    """The sum, the mean or another combination of a row's values, such as the weights of a user's tags.

    >>> batch = pa.RecordBatch.from_pydict({"tags": ["red|big", "green", None]})
    >>> Combine("tags", values={"red": 2.0, "big": 0.5}, separator="|").compute(batch, Problems(3)).to_pylist()
    [2.5, None, None]

    Attributes:
      column: words or numbers: one, a list, or separated strings.
      values: the number of each word; others do not count, and a row without any is missing. None: the words are
        numbers.
      combiner: "sum", "mean", "min", "max" or "count".
      separator: the separator between the words of one string.
    """

    may_be_lists = True
    column: Column
    _: dataclasses.KW_ONLY
    values: Mapping[str, float] | None = None
    combiner: Combiner = "sum"
    separator: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values is not None and not self.values:
            raise ValueError("Combine.values must have at least one word; leave it out where the words are numbers")
        for word, value in (self.values or {}).items():
            fields.number(f"Combine.values['{word}']", value)

    def holds_input(self, column: str) -> str:
        kind = "numbers" if self.values is None else "words"
        return f"{kind}, or lists of them; may be missing"

    def compute(self, columns: Any, problems: Problems) -> Any:
        """Return float64; missing where no value is found."""
        flat = flatten(column_of(self.column, columns, problems), self.separator)
        rows, entries = flat.rows, plain(flat.entries)
        if self.values is not None:
            places = pc.index_in(texts_of(entries), value_set=pa.array(list(self.values)))
            entries = pa.array(list(self.values.values()), pa.float64()).take(places)
        there = entries.is_valid()
        kept = np.flatnonzero(there.to_numpy(zero_copy_only=False))
        return combined(
            entries.filter(there), rows[kept], columns.num_rows, self.combiner, name_of(self.column), problems
        )
