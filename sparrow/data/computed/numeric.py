"""Numbers of columns, their buckets and expressions over them: `Bucketize` and `Expr`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow import fields
from sparrow.data.computed.base import Column, Computed, column_of, name_of, register_computed
from sparrow.data.errors import Problems
from sparrow.data.expressions import Expression, Uneven, Vector
from sparrow.data.values import flatten, numbers, offsets_of


@register_computed("bucketize")
@dataclasses.dataclass(frozen=True)
class Bucketize(Computed):
    """The number of boundaries that are at most x, as the key of a `Lookup` or as one of the values of an `Expr`.

    >>> batch = pa.RecordBatch.from_pydict({"age": [17, None, 40]})
    >>> Bucketize("age", boundaries=(18.0, 30.0)).compute(batch, Problems(3)).to_pylist()
    [0, None, 2]

    Attributes:
      column: numbers, or lists of them.
      boundaries: increasing numbers.
    """

    column: Column
    _: dataclasses.KW_ONLY
    boundaries: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        fields.increasing("Bucketize.boundaries", self.boundaries)

    def holds_input(self, column: str) -> str:
        return "numbers; may be missing"

    def compute(self, columns: Any, problems: Problems) -> Any:
        """Return int64, or lists of them; missing where a number is."""
        column = column_of(self.column, columns, problems)
        vector, missing = read_numbers(column, name_of(self.column), None, problems)
        buckets = np.searchsorted(np.asarray(self.boundaries), vector.values, side="right").astype(np.int64)
        if vector.offsets is None:
            return pa.array(buckets, mask=missing)
        return pa.LargeListArray.from_arrays(vector.offsets, buckets, mask=pa.array(missing))


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
        super().__post_init__()
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
            column = column_of(self.variables.get(name, name), columns, problems)
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
    return pa.LargeListArray.from_arrays(offsets_of(lengths), made.values, mask=pa.array(~keep))


def read_numbers(
    column: Any, name: str, separator: str | None, problems: Problems
) -> tuple[Vector, npt.NDArray[np.bool_]]:
    """Return the numbers of each row, and the mask of rows that lack one: missing, empty, or with a missing element.

    >>> import pyarrow as pa
    >>> vector, missing = read_numbers(pa.array([[1, 2], [], [3, None]]), "x", None, Problems(3))
    >>> vector.offsets.tolist(), missing.tolist()
    ([0, 2, 2, 4], [False, True, True])
    """
    flat = flatten(column, separator)
    parsed = numbers(flat.entries)
    parsed.report(name, problems, flat.row_of)
    rows = len(column)
    missing = np.zeros(rows, np.bool_) if flat.offsets is None else np.diff(flat.offsets) == 0
    if parsed.missing is not None:
        missing[flat.row_of(np.flatnonzero(parsed.missing))] = True
    return Vector(parsed.values, flat.offsets), missing


def rows_of(vector: Vector, keep: npt.NDArray[np.bool_]) -> Vector:
    """Return the rows of a mask."""
    if vector.offsets is None:
        return Vector(vector.values[keep])
    lengths = np.diff(vector.offsets)
    return Vector(vector.values[np.repeat(keep, lengths)], offsets_of(lengths[keep]))
