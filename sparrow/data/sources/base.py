"""`Source` and `Reader`: rows in chunks that can be read in any order, as shuffling and resuming need."""

from __future__ import annotations

import abc
import collections
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow.data.errors import DataError, MissingColumn
from sparrow.kernels.feed import Encoded, EncodedText
from sparrow.registry import Registry

S = TypeVar("S", bound="type[Source]")

BadRows = Literal["error", "skip"]


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of one chunk.

    Attributes:
      table: an Arrow table.
      file: the name of its file in errors.
      place: the place of row i in that file, such as "row 17" or "line 18".
      skipped: rows that could not even be split into columns and were left out.
      refused: the place of each of these, the reason, and its text, where the source knows them.
    """

    table: Any
    file: str
    place: Callable[[int], str]
    skipped: int = 0
    refused: Sequence[tuple[str, str, str]] = ()

    def taken(self, kept: npt.NDArray[np.int64], table: Any) -> Rows:
        """Return ``table``, which holds the rows ``kept`` of these."""
        return dataclasses.replace(self, table=table, place=lambda row: self.place(int(kept[row])))

    def without(
        self, bad: npt.NDArray[np.bool_], why: Callable[[int], str], column: Callable[[int], str], bad_rows: BadRows
    ) -> Rows:
        """Return the rows without bad ones, which are refused, or raise `DataError`; both functions take a row."""
        lost = np.flatnonzero(bad).tolist()
        if not lost:
            return self
        if bad_rows == "error":
            raise DataError(why(lost[0]), self.file, self.place(lost[0]), column(lost[0]))
        rows = self.table.take(pa.array(lost)).to_pylist()
        refused = [(self.place(row), why(row), str(own)) for row, own in zip(lost, rows, strict=True)]
        kept = np.flatnonzero(~bad)
        left = self.taken(kept, self.table.take(pa.array(kept)))
        return dataclasses.replace(left, skipped=self.skipped + len(lost), refused=[*self.refused, *refused])


class Reader(abc.ABC):
    """An opened source: a number of chunks, each of which can be read at any time, from any thread.

    Rows are shuffled by chunks of some ten thousand rows, and a run is resumed at one. A subclass must define
    `num_chunks`, `schemas`, `fingerprint` and `read`; the rest has defaults.

    Attributes:
      num_chunks: the number of chunks.
      schemas: the Arrow type of each column that is read, by file.
      grows: whether chunks come while it is read: it is a `GrowingReader`.
    """

    num_chunks: int
    schemas: Sequence[tuple[str, dict[str, Any]]]
    grows: bool = False

    @property
    @abc.abstractmethod
    def fingerprint(self) -> str:
        """A string that changes when the data does; a position is valid only for the data it was taken from."""

    @property
    def num_rows(self) -> int | None:
        """The number of rows, including malformed ones; None where it is not known before reading."""
        return None

    def rows_of(self, chunk: int) -> int | None:
        """Return the number of rows of a chunk, including malformed ones; None: not known before reading."""
        return None

    def fetch(self, chunk: int) -> Encoded | EncodedText | None:
        """Return the bytes of a chunk, for compiled code to decode; None: `read` must read it.

        Called by several threads at a time.
        """
        return None

    def chosen(self, chunk: int, rows: int) -> npt.NDArray[np.bool_] | None:
        """Return the mask of the rows that belong to the source, of a chunk that `fetch` returned; None: all do."""
        return None

    @abc.abstractmethod
    def read(self, chunk: int, bad_rows: BadRows) -> Rows:
        """Return the rows of one chunk. Called by several threads at a time."""

    def tables(self, bad_rows: BadRows = "error") -> Iterator[Any]:
        for chunk in range(self.num_chunks):
            yield self.read(chunk, bad_rows).table


class ReaderOver(Reader):
    """A reader with the chunks of another one, and other columns."""

    def __init__(self, reader: Reader) -> None:
        self.inner, self.num_chunks = reader, reader.num_chunks

    @property
    def num_rows(self) -> int | None:
        return self.inner.num_rows

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint


class Source(abc.ABC):
    """A source of rows: a frozen dataclass, whose fields a config holds. `open` returns its `Reader`."""

    @abc.abstractmethod
    def open(self, columns: Sequence[str]) -> Reader:
        """Find the files and check that they hold ``columns``; read nothing else yet."""

    @abc.abstractmethod
    def column_names(self) -> list[str]:
        """Return all columns that can be read."""


registry: Registry[Source] = Registry("source", Source)


def register_source(name: str) -> Callable[[S], S]:
    """Return a class decorator that registers a custom source under ``name``, for config files too."""
    return registry.register(name)


def check_columns(file: str, wanted: Sequence[str], present: Sequence[str]) -> None:
    """Refuse a file that lacks a column, or holds it twice."""
    counts = collections.Counter(present)
    for column in wanted:
        if column not in counts:
            raise MissingColumn(file, column, present)
        if counts[column] > 1:
            raise DataError("there are several columns of this name; rename one", file, column=column)
