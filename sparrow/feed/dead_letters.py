"""`DeadLetters`: the file of rows that were left out, with the reason of each."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np

from sparrow.data import Converter, DataError, Rows


class DeadLetters:
    """A file that rows are added to, one line of JSON each, by several threads."""

    def __init__(self, path: str) -> None:
        """Take the file; it is made with the first row."""
        self._path, self._lock = Path(path), threading.Lock()

    def add(self, rows: Rows, converter: Converter) -> None:
        found: list[dict[str, Any]] = [
            {"file": rows.file, "place": place, "reason": why, "row": text} for place, why, text in rows.refused
        ]
        self._write(found + [_letter(rows, *explained) for explained in converter.explained(rows)])

    def add_late(self, rows: Rows, converter: Converter, column: str, limit: int) -> None:
        """Add the usable rows of a chunk whose time is before ``limit``."""
        found, first = list[dict[str, Any]](), 0
        for piece in rows.table.to_batches():
            batch, problems = converter.attempt(piece)
            late = batch.keys[column] < limit
            for row in np.flatnonzero(late if problems.rows is None else late & ~problems.rows).tolist():
                why = f"came late: the stream has rows of all times before {limit}"
                found.append(_letter(rows, first + row, column, why, piece.slice(row, 1).to_pylist()[0]))
            first += piece.num_rows
        self._write(found)

    def _write(self, found: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(letter, default=repr, ensure_ascii=False) + "\n" for letter in found)
        try:
            with self._lock, self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError as error:
            raise DataError(f"dead letters cannot be written: {error.strerror}", str(self._path)) from None


def _letter(rows: Rows, row: int, column: str, why: str, values: Any) -> dict[str, Any]:
    return {"file": rows.file, "place": rows.place(row), "column": column, "reason": why, "row": values}
