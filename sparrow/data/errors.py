"""Errors of data: one line with file, row and column."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.errors import DataError as DataError
from sparrow.errors import shown as shown
from sparrow.registry import nearest

IN_MEMORY: Final = "table in memory"
"""The name of a table that no file holds, in errors."""


class MissingColumn(DataError):
    """A column that a file or a table lacks; ``present``: the columns that there are."""

    def __init__(self, file: str, column: str, present: Sequence[str]) -> None:
        super().__init__(f"there is no such column: {nearest(column, present)}", file, column=column)
        self.present = tuple(present)

    def wanted_by_model(self, use: str = "which the model reads") -> DataError:
        """Return the error for data that is given to a trained model: the data lacks the column, not the model.

        >>> print(MissingColumn("rows.parquet", "price", ["prices", "city"]).wanted_by_model())
        rows.parquet: the table lacks column 'price', which the model reads; 'prices' is near, rename it if it is meant
        """
        close = difflib.get_close_matches(str(self.column), self.present, n=1)
        near = f"; '{close[0]}' is near, rename it if it is meant" if close else ""
        file = None if self.file == IN_MEMORY else self.file
        return DataError(f"the table lacks column '{self.column}', {use}{near}", file)


class Problems:
    """The rows of one Arrow batch that cannot be used, collected while its columns are converted.

    >>> problems = Problems(4)
    >>> problems.add("item", [2, 3], lambda i: f"id number {i} is too large")
    >>> problems.rows.tolist(), problems.first
    ([False, False, True, True], (2, 'item', 'id number 0 is too large'))
    """

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self.rows: npt.NDArray[np.bool_] | None = None  # mask of bad rows; None: no row is
        self.first: tuple[int, str, str] | None = None  # row, column, why

    def add(self, column: str, rows: Any, why: Callable[[int], str]) -> None:
        """Mark ``rows`` as bad; ``why(i)`` returns the reason for the i-th of them."""
        rows = np.asarray(rows)
        if rows.size == 0:
            return
        if self.rows is None:
            self.rows = np.zeros(self.num_rows, np.bool_)
        self.rows[rows] = True
        i = int(np.argmin(rows))
        if self.first is None or rows[i] < self.first[0]:
            self.first = (int(rows[i]), column, why(i))

    def add_inner(self, inner: Problems, rows: npt.NDArray[np.int64]) -> None:
        """Add the problems of elements; ``rows``: the row that each element is in, in their order."""
        if inner.rows is not None and inner.first is not None:
            _, column, why = inner.first
            self.add(column, rows[inner.rows], lambda _: why)
