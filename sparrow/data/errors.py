"""What can be wrong with data, and how it is said: one line with file, row and column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt


class DataError(ValueError):
    """A file, a row or a value that cannot be used.

    >>> print(DataError("7 is outside 0 to 4", file="clicks.parquet", place="row 3", column="item"))
    clicks.parquet, row 3, column 'item': 7 is outside 0 to 4

    Attributes:
      file: path of the file, or the name of a table in memory.
      place: "row 3" (counted from 0) in Parquet and tables, "line 4" (counted from 1) in text files; or None.
      column: the column, or None.
      why: what is wrong, and what to do.
    """

    def __init__(self, why: str, file: str | None = None, place: str | None = None, column: str | None = None) -> None:
        self.why, self.file, self.place, self.column = why, file, place, column
        where = [file, place, column and f"column '{column}'"]
        super().__init__(": ".join(filter(None, [", ".join(filter(None, where)), " ".join(why.split())])))


class WaitInterrupted(Exception):
    """Somebody asked to stop while a batch was waited for."""


class Problems:
    """Collects the rows of one Arrow batch that cannot be used, while its columns are converted.

    >>> problems = Problems(4)
    >>> problems.add("item", [2, 3], lambda i: f"id number {i} is too large")
    >>> problems.rows.tolist(), problems.first
    ([False, False, True, True], (2, 'item', 'id number 0 is too large'))
    """

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self.rows: npt.NDArray[np.bool_] | None = None  # which rows are bad; None: no row is
        self.first: tuple[int, str, str] | None = None  # row, column, why

    def add(self, column: str, rows: Any, why: Callable[[int], str]) -> None:
        """Marks ``rows``; ``why(i)`` says what is wrong with the i-th of them."""
        rows = np.asarray(rows)
        if rows.size == 0:
            return
        if self.rows is None:
            self.rows = np.zeros(self.num_rows, np.bool_)
        self.rows[rows] = True
        i = int(np.argmin(rows))
        if self.first is None or rows[i] < self.first[0]:
            self.first = (int(rows[i]), column, why(i))


def shown(value: Any) -> str:
    """A value as an error message shows it: never longer than a glance."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
