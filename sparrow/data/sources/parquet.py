"""Parquet files: a chunk is a row group."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparrow.data.errors import DataError
from sparrow.data.sources.base import BadRows, Reader, Rows, Source, check_columns, register_source
from sparrow.data.sources.content import fingerprint
from sparrow.data.sources.files import find_files
from sparrow.data.sources.pages import Pages
from sparrow.data.values import is_text
from sparrow.data.views import plain_kind, without_views
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
        """Read the files' footers."""
        return ParquetReader(find_files(self.path, (".parquet", ".pq")), columns)

    def column_names(self) -> list[str]:
        """Return the columns of the first file."""
        _, schema = _footer(find_files(self.path, (".parquet", ".pq"))[0])
        return list(schema.names)


class ParquetReader(Reader):
    """Row groups of Parquet files."""

    def __init__(self, files: Sequence[Path], columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._open = threading.local()
        self._files = list(files)
        footers = [_footer(file) for file in files]
        self._footers = [footer for footer, _ in footers]
        self._groups = [
            (i, group)
            for i, footer in enumerate(self._footers)
            for group in range(footer.num_row_groups)
            if footer.row_group(group).num_rows
        ]
        self._schemas: list[tuple[str, dict[str, Any]]] = []
        for file, (_, schema) in zip(files, footers, strict=True):
            check_columns(str(file), columns, schema.names)
            self._schemas.append((str(file), {column: plain_kind(schema.field(column).type) for column in columns}))
        self._pages = [Pages(file, *footer, columns) for file, footer in zip(files, footers, strict=True)]
        # Strings come as dictionaries: most columns are written so, and each distinct string is hashed once per group.
        self._texts = [column for column in columns if is_text(self._schemas[0][1][column])]

    @property
    def num_chunks(self) -> int:
        """Row groups that hold rows."""
        return len(self._groups)

    @property
    def num_rows(self) -> int:
        """From the footers."""
        return sum(footer.num_rows for footer in self._footers)

    @property
    def fingerprint(self) -> str:
        """The files' names and content, as `content.fingerprint` covers it."""
        return fingerprint(self._files)

    @property
    def schemas(self) -> Sequence[tuple[str, dict[str, Any]]]:
        """From the footers."""
        return self._schemas

    def rows_of(self, chunk: int) -> int:
        """From the footers."""
        i, group = self._groups[chunk]
        return int(self._footers[i].row_group(group).num_rows)

    def fetch(self, chunk: int) -> Encoded | None:
        """Return the encoded columns of a row group, where compiled code knows their encoding."""
        i, group = self._groups[chunk]
        return self._pages[i].read(group)

    def _opened(self, file: int) -> Any:
        """Return a file, opened for the calling thread, which keeps the last one open while it is the same file."""
        path = self._files[file]
        found = path.stat()
        same = (file, found.st_ino, found.st_size, found.st_mtime_ns)
        held = getattr(self._open, "file", None)
        if held is None or held[0] != same:
            opened = pq.ParquetFile(
                str(path), metadata=self._footers[file], read_dictionary=self._texts, memory_map=True
            )
            self._open.file = held = same, opened
        return held[1]

    def read(self, chunk: int, bad_rows: BadRows) -> Rows:
        """Return one row group."""
        i, group = self._groups[chunk]
        footer, file = self._footers[i], str(self._files[i])
        try:
            # Other threads decode other groups at the same time.
            table = without_views(self._opened(i).read_row_group(group, self._columns, use_threads=False))
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"cannot be read, it may be damaged: {error}", file, f"row group {group}") from None

        def place(row: int) -> str:
            return f"row {row + sum(footer.row_group(before).num_rows for before in range(group))}"

        return Rows(table, file, place)


def _footer(file: Path) -> tuple[Any, Any]:
    """Return a file's metadata, and its Arrow schema."""
    try:
        footer = pq.read_metadata(str(file))
        return footer, footer.schema.to_arrow_schema()
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise DataError(f"is not a Parquet file, or was cut off: {error}", str(file)) from None
