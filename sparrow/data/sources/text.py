"""CSV and TSV files: a chunk is a stretch of complete lines, found by its bytes, to be read in any order."""

from __future__ import annotations

import dataclasses
import functools
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from sparrow.data.errors import DataError, shown
from sparrow.data.sources.base import BadRows, Reader, Rows, Source, check_columns, register_source
from sparrow.data.sources.files import find_files, fingerprint, other_form
from sparrow.data.sources.lines import TextFile, first_row, has_empty_line, original_row, why_not
from sparrow.files import AnyPath
from sparrow.kernels.feed import EncodedText, TextForm

_UNIT = "\x1f"  # replaces a separator of several characters, which Arrow's parser does not know


@register_source("csv")
@dataclasses.dataclass(frozen=True)
class Csv(Source):
    """Text files of one line per row. Columns are strings, which features read as ids or numbers.

    Files that end in .gz, .bz2 or .zst are unpacked into the folder for temporary files (TMPDIR) when they are opened,
    so that they can be read in any order.

    Attributes:
      path: a file, a folder, a pattern such as "logs/*.csv", or several of these.
      columns: the names of columns, for files without a header.
      separator: the separator between columns, of one or more characters.
      header: whether the first line of each file names the columns; None: it does where ``columns`` is not given.
      quote: the character around strings that hold separators; None: quotes have no meaning.
      newlines_in_values: whether quoted strings may hold line breaks. If not, a line break always ends a row, and
        files are opened without reading every byte.
      encoding: the encoding of the files.
      missing: the strings that mean a missing value.
      chunk_bytes: the bytes to convert at a time, and the unit of shuffling.
    """

    path: str | tuple[str, ...]
    columns: tuple[str, ...] | None = None
    separator: str = ","
    header: bool | None = None
    quote: str | None = '"'
    encoding: str = "utf8"
    missing: tuple[str, ...] = ("",)
    newlines_in_values: bool = False
    chunk_bytes: int = 8 * 2**20

    def __post_init__(self) -> None:
        if not isinstance(self.separator, str) or not self.separator or "\n" in self.separator:
            raise ValueError(f"source 'csv': separator must be one or more characters, got {self.separator!r}")
        if self.quote is not None and (not isinstance(self.quote, str) or len(self.quote) != 1 or self.quote > "\x7f"):
            raise ValueError(f"source 'csv': quote must be one character of ASCII or None, got {self.quote!r}")
        if self.newlines_in_values and self.quote is None:
            raise ValueError("source 'csv': newlines_in_values needs a quote around values with line breaks")
        if self.quote is not None and len(self.separator) > 1:
            raise ValueError("source 'csv': a separator of several characters goes with quote None only")
        if self.header is False and self.columns is None:
            raise ValueError("source 'csv': files without a header need columns, the names in order")
        if not isinstance(self.chunk_bytes, int) or not 1 <= self.chunk_bytes <= 2**30:
            raise ValueError(f"source 'csv': chunk_bytes must be from 1 to {2**30}, got {self.chunk_bytes!r}")
        for field in ("columns", "missing"):
            if isinstance(getattr(self, field), str):
                raise ValueError(f"source 'csv': {field} must be a list of strings, got {getattr(self, field)!r}")
        try:
            knows_lines = "\n".encode(self.encoding) == b"\n"
        except LookupError:
            raise ValueError(f"source 'csv': unknown encoding {self.encoding!r}; most files are utf8") from None
        if not knows_lines:
            raise ValueError(f"source 'csv': files in {self.encoding} cannot be cut at lines; convert them to utf8")

    @property
    def row_quote(self) -> str | None:
        return self.quote if self.newlines_in_values else None

    @property
    def has_header(self) -> bool:
        return self.columns is None if self.header is None else self.header

    def files(self) -> list[AnyPath]:
        return find_files(self.path, (".csv", ".tsv", ".txt", ".dat", ".data"), may_be_packed=True)

    def open(self, columns: Sequence[str]) -> Reader:
        """Read the first lines, and find the starts of chunks."""
        return TextReader(self, self.files(), columns)

    def column_names(self) -> list[str]:
        return self.names_in(self.files()[0])

    def names_in(self, file: AnyPath) -> list[str]:
        line = first_row(file, self.row_quote)
        if why := other_form(line, "csv"):
            raise DataError(why, str(file))
        if self.columns is not None:
            return list(self.columns)
        try:
            table = csv.read_csv(io.BytesIO(self.plain(line)), self.read_options(len(line)), self.parse_options())
            return list(table.column_names)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise DataError(f"the header cannot be read: {error}", str(file), "line 1") from None

    def form(self, names: Sequence[str], wanted: Sequence[str]) -> TextForm:
        return TextForm(
            self.separator,
            self.quote,
            self.newlines_in_values,
            self.encoding,
            tuple(self.missing),
            len(names),
            tuple(names.index(column) for column in wanted),
        )

    def plain(self, data: bytes) -> bytes:
        """Return the bytes with a separator that Arrow knows."""
        return data if len(self.separator) == 1 else data.replace(self.separator.encode(self.encoding), _UNIT.encode())

    def read_options(self, size: int, names: Sequence[str] | None = None) -> Any:
        """Return options for one block and one thread, so that rows keep their numbers."""
        return csv.ReadOptions(
            use_threads=False,
            block_size=size + 1,
            column_names=None if names is None else list(names),
            encoding=self.encoding,
        )

    def parse_options(self, on_invalid_row: Any = None) -> Any:
        return csv.ParseOptions(
            delimiter=self.separator if len(self.separator) == 1 else _UNIT,
            quote_char=False if self.quote is None else self.quote,
            ignore_empty_lines=False,
            newlines_in_values=self.newlines_in_values,
            invalid_row_handler=on_invalid_row,
        )


class TextReader(Reader):
    """Stretches of lines of text files."""

    def __init__(self, source: Csv, files: Sequence[AnyPath], columns: Sequence[str]) -> None:
        self._source, self._files, self._columns = source, list(files), list(columns)
        self._texts: list[TextFile] = []
        self._names: list[list[str]] = []
        self._forms: list[TextForm] = []
        self._chunks: list[tuple[int, int, int]] = []  # file, first byte, end
        for i, file in enumerate(files):
            self._names.append(source.names_in(file))
            check_columns(str(file), columns, self._names[-1])
            self._forms.append(source.form(self._names[-1], columns))
            self._texts.append(TextFile(file, source.row_quote))
            chunks = self._texts[-1].chunks(source.has_header, source.chunk_bytes)
            self._chunks += [(i, start, end) for start, end in chunks]
        self.num_chunks = len(self._chunks)
        self.schemas = [(str(file), dict.fromkeys(columns, pa.string())) for file in files]

    @functools.cached_property
    def num_rows(self) -> int:
        """The number of rows, counted by reading every byte."""
        return sum(self._texts[i].count(start, end) for i, start, end in self._chunks)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self._files, self._source.chunk_bytes)

    def fetch(self, chunk: int) -> EncodedText | None:
        i, start, end = self._chunks[chunk]
        return self._forms[i].read(self._texts[i].stored, start, end)

    def read(self, chunk: int, bad_rows: BadRows) -> Rows:
        i, start, end = self._chunks[chunk]
        lines = functools.partial(self._texts[i].line, start)
        refused: list[tuple[str, str, str]] = []
        data, left_out = self._readable(self._texts[i].read(start, end), i, lines, bad_rows, refused)
        table, left_out = self._parse(i, data, left_out, lines, bad_rows, refused)
        place = lambda row: f"line {lines(original_row(row, left_out))}"  # noqa: E731
        return Rows(table, str(self._files[i]), place, len(left_out), refused)

    def _readable(
        self, data: bytes, i: int, lines: Any, bad_rows: BadRows, refused: list[tuple[str, str, str]]
    ) -> tuple[bytes, Any]:
        """Return the rows that hold text of the right encoding, and the numbers of the others."""
        encoding = self._source.encoding
        may_be_blank = len(self._names[i]) == 1  # an empty line is then a missing value
        has_blank = not may_be_blank and has_empty_line(data)
        if not has_blank and why_not(data, encoding) is None:
            return data, np.zeros(0, np.int64)
        good, bad = [], []
        for k, line in enumerate(self._texts[i].rows(data)):
            is_blank = has_blank and not line.rstrip(b"\r")
            why = "the line is empty" if is_blank else why_not(line, encoding)
            if why is None:
                good.append(line + b"\n")
            elif bad_rows == "skip":
                bad.append(k)
                refused.append((f"line {lines(k)}", why, line.decode("utf8", "backslashreplace")))
            else:
                raise DataError(why, str(self._files[i]), f"line {lines(k)}")
        return b"".join(good), np.array(bad, np.int64)

    def _parse(
        self, i: int, data: bytes, left_out: Any, lines: Any, bad_rows: BadRows, refused: list[tuple[str, str, str]]
    ) -> tuple[Any, Any]:
        source, file, names = self._source, str(self._files[i]), self._names[i]
        invalid: list[Any] = []

        def on_invalid_row(row: Any) -> str:
            invalid.append(row)
            return "skip" if bad_rows == "skip" else "error"

        if not data:
            return pa.table({column: pa.array([], pa.string()) for column in self._columns}), left_out
        data = source.plain(data)
        convert = csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=self._columns,
            null_values=list(source.missing),
            strings_can_be_null=True,
            check_utf8=False,  # done, line by line
        )
        try:
            table = csv.read_csv(
                pa.BufferReader(data),  # a file of Python's would be read under the interpreter's lock
                source.read_options(len(data), names),
                source.parse_options(on_invalid_row),
                convert,
            )
        except pa.ArrowException as error:
            if not invalid:
                raise DataError(f"cannot be split into columns: {error}", file) from None
            at = original_row(invalid[0].number - 1, left_out)
            raise DataError(f"{_why(invalid[0])}: {shown(invalid[0].text)}", file, f"line {lines(at)}") from None
        if not invalid:
            return table, left_out
        more = np.array([original_row(row.number - 1, left_out) for row in invalid], np.int64)
        refused += [(f"line {lines(at)}", _why(row), row.text) for at, row in zip(more.tolist(), invalid, strict=True)]
        return table, np.sort(np.concatenate([left_out, more]))


def _why(row: Any) -> str:
    return f"needs {row.expected_columns} columns, got {row.actual_columns}"
