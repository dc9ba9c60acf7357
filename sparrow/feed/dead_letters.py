"""`DeadLetters`: the file of rows that were left out, with the reason of each."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

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
        for row, column, why, values in converter.explained(rows):
            found.append({"file": rows.file, "place": rows.place(row), "column": column, "reason": why, "row": values})
        text = "".join(json.dumps(letter, default=repr, ensure_ascii=False) + "\n" for letter in found)
        try:
            with self._lock, self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError as error:
            raise DataError(f"dead letters cannot be written: {error.strerror}", str(self._path)) from None
