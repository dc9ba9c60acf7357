"""Errors that users read: one line for each problem of a config, a record or data, with its place and the remedy."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence

Path = tuple[str | int, ...]
"""The path of a value in a config: the keys and list positions that lead to it."""


def dotted(path: Path) -> str:
    """Return a path as overrides and error messages write it.

    >>> dotted(("tasks", 0, "losses"))
    'tasks[0].losses'
    """
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text


@dataclasses.dataclass(frozen=True)
class Problem:
    """One mistake: its field, a sentence, and the line of the file where known."""

    path: Path
    message: str
    line: int | None = None

    def under(self, prefix: Path) -> Problem:
        """Return the same problem, of a value under ``prefix``."""
        return dataclasses.replace(self, path=(*prefix, *self.path))


class ConfigError(ValueError):
    """A config that cannot be used. ``problems`` holds all its problems; the message is one line for each.

    >>> print(ConfigError([Problem(("train", "steps"), "must be at least 1, got 0", line=3)], source="a.yaml"))
    a.yaml:3: train.steps: must be at least 1, got 0
    """

    def __init__(self, problems: Iterable[Problem] | str, source: str | None = None, *, at: Path = ()) -> None:
        """Take all problems; a string is a problem ``at`` a field. ``source`` is the file's name."""
        self.problems: Sequence[Problem] = (Problem(at, problems),) if isinstance(problems, str) else tuple(problems)
        self.source = source
        super().__init__("\n".join(map(self._text, self.problems)))

    def _text(self, problem: Problem) -> str:
        place = [self.source] if self.source else []
        if problem.line is not None:
            place.append(str(problem.line) if self.source else f"line {problem.line}")
        # Keep to one line, also where the message quotes a value with several.
        message = problem.message.replace("\r", "\\r").replace("\n", "\\n")
        return ": ".join(part for part in (":".join(place), dotted(problem.path), message) if part)


@contextlib.contextmanager
def problems_of(*path: str) -> Iterator[None]:
    """Raise the errors of a block of code as problems of the field ``path``; those that have a field keep it."""
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error), at=path) from None


def shown(value: object, limit: int = 80) -> str:
    """Return a value as an error message quotes it: its ``repr``, cut where it is long."""
    try:
        text = repr(value)
    except RecursionError:
        text = f"a {type(value).__name__} nested too deeply to print"
    return text if len(text) <= limit else text[: limit - 3] + "..."


class DataError(ValueError):
    """A file, a row or a value that cannot be used.

    >>> print(DataError("7 is outside 0 to 4", file="clicks.parquet", place="row 3", column="item"))
    clicks.parquet, row 3, column 'item': 7 is outside 0 to 4

    Attributes:
      file: path of the file, or the name of a table in memory.
      place: "row 3" (counted from 0) in Parquet and tables, "line 4" (counted from 1) in text files; or None.
      column: the column, or None.
      why: the mistake and the remedy.
    """

    def __init__(self, why: str, file: str | None = None, place: str | None = None, column: str | None = None) -> None:
        self.why, self.file, self.place, self.column = why, file, place, column
        where = [file, place, column and f"column '{column}'"]
        super().__init__(": ".join(filter(None, [", ".join(filter(None, where)), " ".join(why.split())])))
