"""`Source` and `Reader`: rows in chunks that can be read in any order, which is what shuffling and resuming need."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from sparrow.data.errors import DataError
from sparrow.registry import Registry, nearest

S = TypeVar("S", bound="type[Source]")

BadRows = Literal["error", "skip"]


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of one chunk.

    Attributes:
      table: an Arrow table.
      file: what errors call the place it comes from.
      place: the place of row i in that file, such as "row 17" or "line 18".
      skipped: rows that could not even be split into columns and were left out.
    """

    table: Any
    file: str
    place: Callable[[int], str]
    skipped: int = 0


class Reader(abc.ABC):
    """An opened source: a number of chunks, each of which can be read at any time, from any thread."""

    @property
    @abc.abstractmethod
    def num_chunks(self) -> int:
        """How many chunks there are."""

    @property
    @abc.abstractmethod
    def fingerprint(self) -> str:
        """A text that changes when the data does; a position is valid for the data it was taken from only."""

    @property
    @abc.abstractmethod
    def schemas(self) -> Sequence[tuple[str, dict[str, Any]]]:
        """By file: the Arrow type of each column that is read."""

    @property
    def num_rows(self) -> int | None:
        """How many rows there are, malformed ones included; None where only reading them all would tell."""
        return None

    def fetch(self, chunk: int) -> None:
        """Bring the bytes of a chunk to memory, where `read` would have to wait for the disk."""
        return None

    @abc.abstractmethod
    def read(self, chunk: int, bad_rows: BadRows) -> Rows:
        """The rows of one chunk. Called by several threads at a time."""


class ReaderOver(Reader):
    """A reader whose chunks are those of another one, with other columns."""

    def __init__(self, reader: Reader) -> None:
        self.inner = reader

    @property
    def num_chunks(self) -> int:
        """Those of the inner reader."""
        return self.inner.num_chunks

    @property
    def num_rows(self) -> int | None:
        """That of the inner reader."""
        return self.inner.num_rows

    @property
    def fingerprint(self) -> str:
        """That of the inner reader."""
        return self.inner.fingerprint


class Source(abc.ABC):
    """Where rows come from."""

    @abc.abstractmethod
    def open(self, columns: Sequence[str]) -> Reader:
        """Finds the files, checks that they hold ``columns``, and reads nothing else yet."""

    @abc.abstractmethod
    def column_names(self) -> list[str]:
        """All columns that can be asked for."""


registry: Registry[Source] = Registry("source", Source)


def register_source(name: str) -> Callable[[S], S]:
    """Class decorator: makes one's own source known by ``name``, to config files too."""

    def decorate(cls: S) -> S:
        if not issubclass(cls, Source):
            raise TypeError(f"source '{name}': {cls.__name__} must be a subclass of sparrow.data.Source")
        return registry.register(name)(cls)

    return decorate


def check_columns(file: str, wanted: Sequence[str], present: Sequence[str]) -> None:
    """Refuses a file that lacks a column, or holds it twice."""
    for column in wanted:
        if column not in present:
            raise DataError(f"there is no such column: {nearest(column, present)}", file, column=column)
        if list(present).count(column) > 1:
            raise DataError("there are several columns of this name; rename one", file, column=column)
