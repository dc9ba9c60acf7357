"""`BoolMask`: the elements of a list that another list of the same row marks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.data.computed.base import Column, Computed, check_inputs, check_strings, column_of, register_computed
from sparrow.data.computed.pairs import listed, rows_of_entries, texts_of
from sparrow.data.errors import Problems
from sparrow.data.values import flatten, plain


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

    column: Column
    mask: Column
    _: dataclasses.KW_ONLY
    separator: str | None = None

    def __post_init__(self) -> None:
        check_inputs(self, "column", "mask")
        check_strings(self, "separator")

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.column, self.mask)

    def holds_input(self, column: str) -> str:
        return "lists" if column == self.column else f"as many marks, true or false, as values of '{self.column}'"

    def is_single(self, column: str) -> bool:
        return False

    def compute(self, columns: Any, problems: Problems) -> Any:
        count = columns.num_rows
        values, marks = (flatten(column_of(given, columns, problems), self.separator) for given in self.inputs)
        rows, marked = rows_of_entries(values), rows_of_entries(marks)
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
