"""`Expr`: numbers by an expression over columns."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from sparrow import fields
from sparrow.data.computed.base import Column, Computed, check_strings, column_of, register_computed
from sparrow.data.computed.numeric import read_numbers, rows_of
from sparrow.data.errors import Problems
from sparrow.data.expressions import Expression, Uneven, Vector


@register_computed("expr")
@dataclasses.dataclass(frozen=True)
class Expr(Computed):
    """Numbers by an expression, whose variables are columns of numbers or of lists of numbers.

    A row that lacks one of them has no value. Lists of one row go side by side, number by number, and single numbers
    are repeated beside them; functions such as ``dot`` and ``reduce_max`` make one number of lists.

    >>> batch = pa.RecordBatch.from_pydict({"click": [1, 0, None], "show": [4, 0, 2]})
    >>> Expr("show > 0 ? click / show : 0").compute(batch, Problems(3)).to_pylist()
    [0.25, 0.0, None]

    Attributes:
      expression: operators are ``?: || && | & <= >= != == > < + - * / % ^ !`` as in C (also ``or and **``), functions
        those of `sparrow.data.expressions.FUNCTIONS`, constants ``_pi`` and ``_e``. Backquotes enclose a column's name
        of other characters.
      variables: the columns of variables that have another name, or are computed themselves.
      separator: the separator between the numbers of one string.
      fill: the number behind the shorter one of two lists that meet in a row; None: lists of different lengths are an
        error.
    """

    expression: str
    _: dataclasses.KW_ONLY
    variables: Mapping[str, Column] = dataclasses.field(default_factory=dict)
    separator: str | None = None
    fill: float | None = None

    def __post_init__(self) -> None:
        check_strings(self, "separator")
        if self.fill is not None:
            fields.number("Expr.fill", self.fill)
        if not self.parsed.variables:
            raise ValueError(f"expression {self.expression!r} reads no column; name one, or use a constant")
        for name in self.variables:
            if name not in self.parsed.variables:
                raise ValueError(f"expression {self.expression!r} has no variable '{name}'; remove it from variables")

    @functools.cached_property
    def parsed(self) -> Expression:
        return Expression(self.expression)

    @property
    def inputs(self) -> tuple[Column, ...]:
        return tuple(self.variables.get(name, name) for name in self.parsed.variables)

    def holds_input(self, column: str) -> str:
        return "numbers, or lists of them; may be missing"

    def compute(self, columns: Any, problems: Problems) -> Any:
        """Return float64, or lists of them; missing where a variable is, or where the result is not a number."""
        rows = columns.num_rows
        keep, read = np.ones(rows, np.bool_), {}
        for name in self.parsed.variables:
            given = self.variables.get(name, name)
            column = column_of(given, columns, problems)
            read[name], missing = read_numbers(column, name, self.separator, problems)
            keep &= ~missing
        try:
            kept = {name: rows_of(vector, keep) for name, vector in read.items()}
            made = self.parsed(kept, int(keep.sum()), self.fill)
        except Uneven as error:
            uneven = np.flatnonzero(keep)[error.rows]
            why = f"lists of different lengths meet in {self.expression!r}; give the expression a fill"
            problems.add(self.parsed.variables[0], uneven, lambda _: why)
            return pa.nulls(rows, pa.float64())
        return _spread(made, keep)


def _spread(made: Vector, keep: Any) -> Any:
    """Return the results of the kept rows as a column of all rows."""
    if made.offsets is None:
        values = np.full(len(keep), np.nan)
        values[keep] = made.values
        return pa.array(values, from_pandas=True)
    lengths = np.zeros(len(keep), np.int64)
    lengths[keep] = np.diff(made.offsets)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return pa.LargeListArray.from_arrays(offsets, made.values, mask=pa.array(~keep))
