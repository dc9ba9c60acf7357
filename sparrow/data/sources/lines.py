"""Rows of a text file by their bytes: the begin and end of chunks, the number of rows, their lines.

A row is a line; where quotes may hold line breaks, it ends at the first line break outside of quotes, which is one
after an even number of quotes.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow.data.errors import DataError
from sparrow.data.sources.files import is_packed
from sparrow.files import AnyPath

MARK: Final = b"\xef\xbb\xbf"
"""The mark that some tools put before UTF-8."""
BLOCK: Final = 2**24
"""Bytes to read at a time."""
ASCII_INSIDE: Final = ("utf8", "utf-8", "ascii", "latin1")
"""Encodings in which text of ASCII is itself."""


class TextFile:
    """The rows of one file. A packed file is unpacked once, to a temporary file that is removed with this object."""

    def __init__(self, path: AnyPath, quote: str | None = None) -> None:
        """Open the file. ``quote`` is given where quoted strings may hold line breaks."""
        self.stored = path  # the file that holds the text, unpacked
        self._quote = None if quote is None else quote.encode()
        if is_packed(path):
            self.stored = _unpacked(path)
            weakref.finalize(self, self.stored.unlink, missing_ok=True)
        with self.stored.open("rb") as opened:
            self._begin = len(MARK) if opened.read(len(MARK)) == MARK else 0
            self._end = _end_of_rows(opened)

    def chunks(self, header: bool, size: int) -> list[tuple[int, int]]:
        """Return begins and ends of stretches of complete rows of about ``size`` bytes; ``header``: skip the first."""
        begin = self._begin
        if header:
            begin = next((int(ends[0]) for ends in self._row_ends(begin, self._end) if len(ends)), self._end)
        starts = [begin, *(self._cuts_in_quotes(begin, size) if self._quote else self._cuts(begin, size))]
        return [(start, end) for start, end in zip(starts, [*starts[1:], self._end], strict=True) if start < end]

    def read(self, start: int, end: int) -> bytes:
        """Return the rows of a stretch; a missing line break at the end of the file is added."""
        with self.stored.open("rb") as opened:
            opened.seek(start)
            data = opened.read(end - start)
        return data if data.endswith(b"\n") else data + b"\n"

    def rows(self, data: bytes) -> list[bytes]:
        """Return the rows of a stretch, one by one, without the line breaks that end them."""
        ends = [0, *_row_ends(data, self._quote, 0)[0].tolist()]
        if ends[-1] < len(data):  # unclosed quotes
            ends.append(len(data))
        return [data[a : b - data.endswith(b"\n", a, b)] for a, b in itertools.pairwise(ends)]

    def count(self, start: int, end: int) -> int:
        if self._quote is None:
            return self.read(start, end).count(b"\n")
        count, last = 0, start
        for ends in self._row_ends(start, end):
            count += len(ends)
            last = int(ends[-1]) if len(ends) else last
        return count + (last < end)

    def line(self, start: int, row: int) -> int:
        """Return the number in the file, from 1, of the line on which the row-th row from byte ``start`` begins."""
        before = row
        if self._quote is not None and row:
            ends = itertools.chain.from_iterable(self._row_ends(start, self._end))
            end = next(itertools.islice(ends, row - 1, None), self._end)
            before = self.read(start, int(end)).count(b"\n")
        with self.stored.open("rb") as opened:
            left = start
            while left > 0:
                block = opened.read(min(left, BLOCK))
                before += block.count(b"\n")
                left -= len(block)
        return before + 1

    def _cuts(self, begin: int, size: int) -> Iterator[int]:
        with self.stored.open("rb") as opened:
            at = begin
            while at + size < self._end:
                opened.seek(at + size - 1)
                opened.readline()
                at = opened.tell()
                yield at

    def _cuts_in_quotes(self, begin: int, size: int) -> Iterator[int]:
        at = begin
        for ends in self._row_ends(begin, self._end):
            while len(ends) and ends[-1] >= at + size:
                at = int(ends[np.searchsorted(ends, at + size)])
                if at < self._end:
                    yield at

    def _row_ends(self, start: int, end: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield, block by block, the bytes after the line breaks that end a row."""
        parity = 0
        with self.stored.open("rb") as opened:
            opened.seek(start)
            while start < end:
                block = opened.read(min(BLOCK, end - start))
                if not block:  # cut off since it was opened
                    return
                ends, parity = _row_ends(block, self._quote, parity)
                yield ends + start
                start += len(block)


def _row_ends(data: bytes, quote: bytes | None, parity: int) -> tuple[npt.NDArray[np.int64], int]:
    """Return the bytes after the line breaks that end a row, and whether quotes are open at the end."""
    block = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(block == ord(b"\n"))
    if quote is not None:
        quotes = np.flatnonzero(block == ord(quote))
        ends = ends[(np.searchsorted(quotes, ends) + parity) % 2 == 0]
        parity = (len(quotes) + parity) % 2
    return ends + 1, parity


def first_row(path: AnyPath, quote: str | None = None) -> bytes:
    """Return the first row of a file, packed or not, with its line break."""
    try:
        with _stream(path) as opened:
            data: bytes = opened.read(2**20).removeprefix(MARK)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot be read: {error}", str(path)) from None
    ends, _ = _row_ends(data, None if quote is None else quote.encode(), 0)
    return data[: ends[0]] if len(ends) else data


def _unpacked(path: AnyPath) -> Path:
    descriptor, name = tempfile.mkstemp(prefix="sparrow-", suffix=".txt")
    try:
        with os.fdopen(descriptor, "wb") as out, _stream(path) as packed:
            while block := packed.read(BLOCK):
                out.write(block)
    except (OSError, pa.ArrowException) as error:
        Path(name).unlink(missing_ok=True)
        where = "" if getattr(error, "errno", None) is None else f" to {tempfile.gettempdir()} (set TMPDIR for another)"
        raise DataError(f"cannot be unpacked{where}: {error}", str(path)) from None
    return Path(name)


def _stream(path: AnyPath) -> Any:
    """Return a file from its first byte on, unpacked."""
    return pa.input_stream(str(path), compression="detect") if isinstance(path, Path) else path.stream()


def _end_of_rows(opened: BinaryIO) -> int:
    """Return the end of the last row: empty lines at the end of a file are not rows."""
    end = opened.seek(0, os.SEEK_END)
    while end:
        size = min(end, 4096)
        opened.seek(end - size)
        left = len(opened.read(size).rstrip(b"\r\n"))
        if left:
            return end + left - size
        end -= size
    return end


def has_empty_line(data: bytes) -> bool:
    r"""Return whether a line is empty. NumPy looks without the interpreter's lock, unlike a search in bytes.

    >>> has_empty_line(b"a\nb\n"), has_empty_line(b"a\n\nb\n"), has_empty_line(b"\r\na\r\n"), has_empty_line(b"")
    (False, True, True, False)
    """
    block = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(block == ord(b"\n"))
    lengths = np.diff(ends, prepend=-1)
    return bool((lengths == 1).any() or (block[ends[lengths == 2] - 1] == ord(b"\r")).any())


def why_not(data: bytes, encoding: str) -> str | None:
    """Return the sentence on bytes that are not in the encoding; None: they are."""
    if encoding in ASCII_INSIDE and data.isascii():
        return None  # without a copy
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        return f"byte {data[error.start]:#x} is not {encoding} text; give the file's encoding, such as latin1"
    return None


def original_row(row: int, left_out: Any) -> int:
    """Return the number in the chunk of a row that is counted without ``left_out``."""
    for line in left_out:
        row += line <= row
    return int(row)
