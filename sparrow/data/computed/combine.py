"""`Combine`: one number of all the words, or numbers, of a row."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow import fields
from sparrow.data.computed.base import Column, Computed, check_inputs, check_strings, column_of, register_computed
from sparrow.data.computed.pairs import COMBINERS, combined, rows_of_entries, texts_of
from sparrow.data.errors import Problems
from sparrow.data.values import flatten, plain


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

    column: Column
    _: dataclasses.KW_ONLY
    values: Mapping[str, float] | None = None
    combiner: Literal["sum", "mean", "min", "max", "count"] = "sum"
    separator: str | None = None

    def __post_init__(self) -> None:
        check_inputs(self, "column")
        check_strings(self, "separator")
        fields.choice("Combine.combiner", self.combiner, COMBINERS)
        if self.values is None:
            return
        if not self.values:
            raise ValueError("Combine.values must have at least one word; leave it out where the words are numbers")
        for word, value in self.values.items():
            fields.number(f"Combine.values['{word}']", value)

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.column,)

    def holds_input(self, column: str) -> str:
        kind = "numbers" if self.values is None else "words"
        return f"{kind}, or lists of them; may be missing"

    def is_single(self, column: str) -> bool:
        return False

    def compute(self, columns: Any, problems: Problems) -> Any:
        """Return float64; missing where no value is found."""
        flat = flatten(column_of(self.column, columns, problems), self.separator)
        rows, entries = rows_of_entries(flat), plain(flat.entries)
        if self.values is not None:
            places = pc.index_in(texts_of(entries), value_set=pa.array(list(self.values)))
            entries = pa.array(list(self.values.values()), pa.float64()).take(places)
        there = entries.is_valid()
        name = self.columns[0] if self.columns else "a constant"
        kept = np.flatnonzero(there.to_numpy(zero_copy_only=False))
        return combined(entries.filter(there), rows[kept], columns.num_rows, self.combiner, name, problems)
