"""`Each`: a computed column for every element of sequences."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa

from sparrow.data.computed.base import Column, Computed, check_strings, register_computed
from sparrow.data.elements import elements_of, report
from sparrow.data.errors import Problems
from sparrow.data.values import is_list, is_text


@register_computed("each")
@dataclasses.dataclass(frozen=True)
class Each(Computed):
    """A computed column, element by element of sequences; columns that are no sequences are the same for all elements.

    >>> from sparrow.data.computed.expr import Expr
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
        check_strings(self, "separator")
        if not self.sequences:
            raise ValueError("Each.sequences must name at least one column")
        for name in self.sequences:
            if name not in self.compute_each.columns:
                read = ", ".join(self.compute_each.columns)
                raise ValueError(f"Each.sequences names '{name}', which is not read; the columns are: {read}")

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.compute_each,)

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
        report(inner, found.rows, problems)
        return pa.LargeListArray.from_arrays(found.offsets, made)
