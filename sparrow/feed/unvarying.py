"""`Unvarying`: columns without information, such as one that is null or NaN in every row."""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np

from sparrow.data import Batch
from sparrow.embedding import Ragged

ENOUGH: Final = 10_000
"""Rows after which a column that has never varied gets a warning; so does one at the end of the run."""


class Unvarying:
    """A watch of each number and label until it has varied, and of each id feature until it has had an id.

    >>> watch = Unvarying()
    >>> watch.add(Batch(numbers={"price": np.zeros((4, 1), np.float32)}, labels={"click": np.array([0.0, 1, 0, 1])}))
    >>> print(*watch.warnings(), sep="\\n")
    warning: feature 'price' is 0 in every row so far: the column is null, NaN or one number throughout
    """

    def __init__(self) -> None:
        self._rows = 0
        self._first: dict[str, Any] = {}  # the first value of each number and label
        self._fine: set[str] = set()
        self._suspects: dict[str, str] = {}
        self._is_done = False
        self._lock = threading.Lock()

    def add(self, batch: Batch) -> None:
        """Examine one more batch. Called by the pipeline's threads."""
        with self._lock:
            if self._is_done or not len(batch):
                return
            self._rows += len(batch)
            for name, ids in batch.ids.items():
                if isinstance(ids, Ragged):
                    has_id = len(ids.values) > 0
                else:  # rows are 0 or more; raw ids have a mark of their presence beside them
                    has_id = bool(ids[:, 2].any() if ids.ndim == 2 else (ids >= 0).any())
                self._look(f"feature '{name}'", has_id, "is without an id")
            for kind, columns in (("feature", batch.numbers), ("label", batch.labels)):
                for name, held in columns.items():
                    column, values = f"{kind} '{name}'", held.values if isinstance(held, Ragged) else held
                    if column not in self._fine and len(values):
                        first = self._first.setdefault(column, np.array(values[0]))
                        text = ", ".join(f"{number:g}" for number in np.unique(first))
                        self._look(column, bool((values != first).any()), f"is {text}")

    @property
    def is_content(self) -> bool:
        """Whether every column has varied, or no one needs to know any more."""
        return self._is_done or (self._rows > 0 and not self._suspects)

    @property
    def is_due(self) -> bool:
        return not self._is_done and self._rows >= ENOUGH

    def warnings(self) -> list[str]:
        """Return a line for each column that has never varied. The first call ends the watch."""
        with self._lock:
            if self._is_done:
                return []
            self._is_done = True
        return [
            f"warning: {column} {what} in every row so far: the column is null, NaN or one number throughout"
            for column, what in self._suspects.items()
        ]

    def _look(self, column: str, varies: bool, what: str) -> None:
        if varies:
            self._fine.add(column)
            self._suspects.pop(column, None)
        elif column not in self._fine:
            self._suspects[column] = what
