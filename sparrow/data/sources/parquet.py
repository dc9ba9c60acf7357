"""Parquet files: a chunk is a row group."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparrow.data.errors import DataError
from sparrow.data.sources.base import BadRows, Reader, Rows, Source, check_columns, register_source
from sparrow.data.sources.content import fingerprint
from sparrow.data.sources.files import find_files
from sparrow.data.values import is_text


@register_source("parquet")
@dataclasses.dataclass(frozen=True)
class Parquet(Source):
    """Parquet files of one schema. Only the columns that are asked for are read.

    Rows are shuffled by the row group: write groups of some ten thousand rows.

    Attributes:
      path: a file, a folder, a pattern such as "clicks/*.parquet", or several of these.
    """

    path: str | tuple[str, ...]

    def open(self, columns: Sequence[str]) -> Reader:
        """Reads the files' footers."""
        return ParquetReader(find_files(self.path, (".parquet", ".pq")), columns)

    def column_names(self) -> list[str]:
        """The columns of the first file."""
        _, fields = _footer(find_files(self.path, (".parquet", ".pq"))[0])
        return [name for name, _ in fields]


class ParquetReader(Reader):
    """Row groups of Parquet files."""

    def __init__(self, files: Sequence[Path], columns: Sequence[str]) -> None:
        self._columns = list(columns)
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
        for file, (_, fields) in zip(files, footers, strict=True):
            check_columns(str(file), columns, [name for name, _ in fields])
            kinds = dict(fields)
            self._schemas.append((str(file), {column: kinds[column] for column in columns}))
        # Texts come as dictionaries: most columns are written so, and each distinct text is hashed once per group.
        self._texts = [column for column in columns if is_text(self._schemas[0][1][column])]

    @property
    def num_chunks(self) -> int:
        """Row groups that hold rows."""
        return len(self._groups)

    @property
    def num_rows(self) -> int:
        """As the footers say."""
        return sum(footer.num_rows for footer in self._footers)

    @property
    def fingerprint(self) -> str:
        """The files' names and content, as `content.fingerprint` covers it."""
        return fingerprint(self._files)

    @property
    def schemas(self) -> Sequence[tuple[str, dict[str, Any]]]:
        """As the footers say."""
        return self._schemas

    def read(self, chunk: int, bad_rows: BadRows) -> Rows:
        """One row group."""
        i, group = self._groups[chunk]
        footer, file = self._footers[i], str(self._files[i])
        try:
            with pq.ParquetFile(file, metadata=footer, read_dictionary=self._texts, memory_map=True) as opened:
                # The loop computes at the same time: one thread decodes ahead, the other cores are the model's.
                table = opened.read_row_group(group, self._columns, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"cannot be read, it may be damaged: {error}", file, f"row group {group}") from None

        def place(row: int) -> str:
            return f"row {row + sum(footer.row_group(before).num_rows for before in range(group))}"

        return Rows(table, file, place)


def _footer(file: Path) -> tuple[Any, list[tuple[str, Any]]]:
    """A file's metadata, and the name and type of each column."""
    try:
        footer = pq.read_metadata(str(file))
        return footer, [(field.name, field.type) for field in footer.schema.to_arrow_schema()]
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise DataError(f"is not a Parquet file, or was cut off: {error}", str(file)) from None
