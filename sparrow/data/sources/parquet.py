"""Parquet files: a chunk is a row group."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow.data.errors import DataError
from sparrow.data.sources.base import BadRows, Reader, Rows, Source, check_columns, register_source
from sparrow.data.sources.files import START, find_files, fingerprint, in_threads, other_form
from sparrow.data.sources.pages import Pages
from sparrow.data.values import is_text, plain_kind, without_views
from sparrow.files import AnyPath, Remote
from sparrow.kernels import feed
from sparrow.kernels.feed import Encoded


@register_source("parquet")
@dataclasses.dataclass(frozen=True)
class Parquet(Source):
    """Parquet files of one schema. Only the requested columns are read.

    Rows are shuffled by the row group: write groups of some ten thousand rows.

    Attributes:
      path: a file, a folder, a pattern such as "clicks/*.parquet", or several of these.
    """

    path: str | tuple[str, ...]

    def open(self, columns: Sequence[str]) -> Reader:
        return ParquetReader(find_files(self.path, (".parquet", ".pq")), columns)

    def column_names(self) -> list[str]:
        return list(_Opened.of(find_files(self.path, (".parquet", ".pq"))[0]).schema.names)


class ParquetReader(Reader):
    """Row groups of Parquet files."""

    def __init__(self, files: Sequence[AnyPath], columns: Sequence[str]) -> None:
        self._columns, self._files, self._open = list(columns), list(files), threading.local()
        self._footers = in_threads(_Opened.of, files)
        self._groups = [
            (i, group) for i, footer in enumerate(self._footers) for group, rows in enumerate(footer.rows) if rows
        ]
        self.schemas: list[tuple[str, dict[str, Any]]] = []
        self._pages: list[Pages | None] = []
        for file, footer in zip(files, self._footers, strict=True):
            check_columns(str(file), columns, footer.schema.names)
            kinds = {column: plain_kind(footer.schema.field(column).type) for column in columns}
            self.schemas.append((str(file), kinds))
            numbers = footer.numbers
            self._pages.append(None if numbers is None else Pages(file, numbers, footer.schema, columns))
        # Strings come as dictionaries: most columns are written so, and each distinct string is hashed once per group.
        self._texts = [column for column in columns if is_text(self.schemas[0][1][column])]
        self.num_chunks = len(self._groups)

    @property
    def num_rows(self) -> int:
        return sum(sum(footer.rows) for footer in self._footers)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self._files)

    def rows_of(self, chunk: int) -> int:
        i, group = self._groups[chunk]
        return self._footers[i].rows[group]

    def fetch(self, chunk: int) -> Encoded | None:
        i, group = self._groups[chunk]
        pages = self._pages[i]
        return None if pages is None else pages.read(group)

    def _opened(self, file: int, group: int) -> tuple[Any, Any]:
        """Return the bytes of a file, and the file, opened for the calling thread, which keeps the last one open.

        Of a file of another store, only the bytes of one row group are there.
        """
        path, pages = self._files[file], self._pages[file]
        if isinstance(path, Remote):
            memory: Any = np.frombuffer(path.read_bytes(), np.uint8) if pages is None else pages.fetched(path, group)
            kept = {"metadata": self._footers[file].meta, "read_dictionary": self._texts}
            return memory, pq.ParquetFile(pa.BufferReader(pa.py_buffer(memory)), **kept)
        found = path.stat()
        same = (file, found.st_ino, found.st_size, found.st_mtime_ns)
        held = getattr(self._open, "file", None)
        if held is None or held[0] != same:
            memory = np.memmap(path, np.uint8, "r")
            opened = pq.ParquetFile(
                pa.BufferReader(pa.py_buffer(memory)), metadata=self._footers[file].meta, read_dictionary=self._texts
            )
            self._open.file = held = same, memory, opened
        return held[1:]

    def read(self, chunk: int, bad_rows: BadRows) -> Rows:
        i, group = self._groups[chunk]
        footer, file, pages = self._footers[i], str(self._files[i]), self._pages[i]
        try:
            memory, opened = self._opened(i, group)
            plain = pages is not None and not pages.check(group, memory)
            # Other threads decode other groups at the same time.
            try:
                table = None if plain else opened.read_row_group(group, self._columns, use_threads=False)
            except (OSError, pa.ArrowException):  # some encodings of strings are not read as dictionaries
                table = None
            if table is None:
                opened = pq.ParquetFile(pa.BufferReader(pa.py_buffer(memory)), metadata=footer.meta)
                table = opened.read_row_group(group, self._columns, use_threads=False)
            table.validate(full=True)  # Arrow does not compare places with their dictionary
            table = without_views(table)
        except DataError:
            raise
        except (OSError, ValueError, pa.ArrowException) as error:
            raise DataError(f"cannot be read, it may be damaged: {error}", file, f"row group {group}") from None
        if table.num_rows != footer.rows[group]:
            raise DataError("cannot be read, it is damaged: rows are missing", file, f"row group {group}")

        def place(row: int) -> str:
            return f"row {row + sum(footer.rows[:group])}"

        return Rows(table, file, place)


class _Opened(NamedTuple):
    """A footer: rows by row group, Arrow's metadata and schema, and the checked numbers, with compiled code."""

    rows: list[int]
    meta: Any
    schema: Any
    numbers: feed.Footer | None

    @classmethod
    def of(cls, file: AnyPath) -> _Opened:
        """Read a footer. Arrow reads it only where its numbers are right, because it may end the process otherwise."""
        try:
            with file.open("rb") as opened:
                size = opened.seek(0, os.SEEK_END)
                opened.seek(max(0, size - 8))
                end = opened.read()
                length = int.from_bytes(end[:4], "little")
                if end[4:] != b"PAR1" or length > size - 12:
                    opened.seek(0)
                    why = other_form(opened.read(START), "parquet")
                    raise DataError(why or "is not a Parquet file, or was cut off: it has no footer", str(file))
                opened.seek(size - 8 - length)
                numbers = feed.read_footer(opened.read(length), size, str(file))
                opened.seek(0)
                parquet = pq.ParquetFile(opened)
                # `metadata.schema` and the metadata hold each other: 50 KB and more for each file of a stream.
                meta, schema = parquet.metadata, parquet.schema_arrow
        except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
            raise DataError(f"is not a Parquet file, or was cut off: {error}", str(file)) from None
        groups = range(meta.num_row_groups)
        rows = [int(meta.row_group(i).num_rows) for i in groups] if numbers is None else numbers.rows
        return cls(rows, meta, schema, numbers)
