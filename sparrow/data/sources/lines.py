"""Lines of a text file by their bytes: where chunks of them start and end, and their numbers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO


def line_chunks(file: Path, header: bool, size: int) -> list[tuple[int, int]]:
    """Where stretches of about ``size`` bytes of whole lines start and end."""
    with file.open("rb") as opened:
        total = end_of_lines(opened)
        if header:
            opened.readline()
        elif opened.read(3) != b"\xef\xbb\xbf":  # the mark that some tools put before UTF-8
            opened.seek(0)
        starts = [opened.tell()]
        while starts[-1] + size < total:
            opened.seek(starts[-1] + size - 1)
            opened.readline()
            starts.append(opened.tell())
    ends = [*starts[1:], total]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


def end_of_lines(opened: BinaryIO) -> int:
    """Where the last line ends: empty lines at the end of a file are no rows."""
    end = opened.seek(0, os.SEEK_END)
    while end:
        size = min(end, 4096)
        opened.seek(end - size)
        left = len(opened.read(size).rstrip(b"\r\n"))
        if left:
            end += left - size
            break
        end -= size
    opened.seek(0)
    return end


def why_not(data: bytes, encoding: str) -> str | None:
    """What is wrong with the encoding; None: nothing."""
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        return f"byte {data[error.start]:#x} is not {encoding} text; give the file's encoding, such as latin1"
    return None


def original_line(row: int, left_out: Any) -> int:
    """The line of the chunk that the row-th line after leaving some out was."""
    for line in left_out:
        row += line <= row
    return int(row)


def line_number(file: Path, start: int, line: int) -> int:
    """The number in the file, from 1, of the line-th line of the chunk that starts at byte ``start``."""
    before = 0
    with file.open("rb") as opened:
        left = start
        while left > 0:
            block = opened.read(min(left, 2**24))
            before += block.count(b"\n")
            left -= len(block)
    return before + line + 1
