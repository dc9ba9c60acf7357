"""The files of a source, from paths, folders and globs, and their fingerprints.

A fingerprint covers the size of a file, all bytes of one of up to `WHOLE` bytes, and `BLOCKS` blocks of `BLOCK` bytes
of a larger one, at even distances, the first and the last among them; for Parquet also the complete footer, which holds
the statistics and offsets of every column in every row group. A rewrite of the same size is found unless it changes
only bytes of a large file between the blocks and, in Parquet, leaves all statistics and compressed sizes unchanged.
Dates and folders are not covered: a copy of the data is the same data.
"""

from __future__ import annotations

import concurrent.futures
import glob
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final, TypeVar

from sparrow.data.errors import DataError
from sparrow.files import AnyPath, at, is_remote, matching

PACKED: Final = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".zst": b"\x28\xb5\x2f\xfd"}
"""The endings of packed files, and their first bytes."""
"""Suffixes of packed text files that can be read."""
REFUSED: Final = (".xz", ".zip", ".7z", ".tar", ".tgz")


def is_packed(file: AnyPath) -> bool:
    """Return whether its suffix is that of a packed file."""
    return file.suffix.lower() in PACKED


def find_files(paths: str | Sequence[str], suffixes: Sequence[str], may_be_packed: bool = False) -> list[AnyPath]:
    """Return the files of a path, a folder (with one of ``suffixes``), a glob, or several of these; sorted in each.

    Where they ``may_be_packed``, "clicks.csv.gz" is a file that ends in ".csv". Hidden files and files that start with
    an underscore are left out of folders: data tools mark their own files so.
    """
    given = [paths] if isinstance(paths, str) else list(paths)
    if not given or "" in given:
        raise DataError("no path is given; name a file, a folder or a pattern such as 'clicks/*.parquet'")
    files: list[AnyPath] = []
    for path in given:
        try:
            files += _found(str(path), suffixes, may_be_packed)
        except OSError as error:
            raise DataError(f"cannot be read: {error}", str(path)) from None
    for file in files:
        if file.suffix.lower() in REFUSED or (is_packed(file) and not may_be_packed):
            raise DataError("the file is compressed; unpack it first, so that it can be read from any place", str(file))
        if file.stat().st_size == 0:
            raise DataError("the file is empty; remove it, or name the files one by one", str(file))
    return files


def _found(path: str, suffixes: Sequence[str], may_be_packed: bool) -> list[AnyPath]:
    given = at(path)
    if given.is_file():
        return [given]
    if given.is_dir():
        found: list[AnyPath] = sorted(
            file
            for file in given.rglob("*")
            if file.is_file() and _suffix(file, may_be_packed) in suffixes and not file.name.startswith((".", "_"))
        )
        if not found:
            raise DataError(f"the folder holds no file that ends in {' or '.join(suffixes)}", path)
        return found
    if glob.has_magic(path):
        found = matching(path)
        if not found:
            raise DataError("no file matches the pattern", path)
        return found
    raise DataError("there is no such file or folder", path)


def _suffix(file: AnyPath, may_be_packed: bool) -> str:
    return (PurePosixPath(file.stem) if may_be_packed and is_packed(file) else file).suffix.lower()


START: Final = 4096
"""Bytes at the start of a file that show its form."""


def other_form(start: bytes, source: str) -> str | None:
    """Return the sentence on a file that begins as no file of a source does; None: its form is not known.

    >>> other_form(b"PAR1", "csv")
    'is a Parquet file; give its name the ending .parquet, or the source name: parquet'
    >>> other_form(b"user,item\\n1,2\\n", "parquet"), other_form(b"\\x00", "parquet")
    ('is text; give its name the ending .csv, or the source name: csv', None)
    """
    if start.startswith(b"PAR1"):
        other, kind = "parquet", "a Parquet file"
    elif start.decode("utf-8", "replace").translate(dict.fromkeys(map(ord, "\r\n\t\ufffd"))).isprintable():
        other, kind = "csv", "text"
    else:
        packed = [ending for ending, magic in PACKED.items() if start.startswith(magic)]
        return f"is compressed; give its name the ending {packed[0]}, or unpack it" if packed else None
    return None if source == other else f"is {kind}; give its name the ending .{other}, or the source name: {other}"


T = TypeVar("T")
BLOCK: Final = 4096
BLOCKS: Final = 16
WHOLE: Final = 256 * 1024
THREADS: Final = 16
"""Files of other stores that are read at a time: each waits for answers most of the time."""
_MAGIC: Final = (b"PAR1", b"PARE")


def fingerprint(files: Iterable[AnyPath], *facts: Any) -> str:
    """Return the fingerprint of files, in their order, and of ``facts``, which also decide their rows."""
    digest = hashlib.sha256(repr(facts).encode())
    for part in in_threads(_parts, files):
        digest.update(part)
    return digest.hexdigest()[:16]


def in_threads(function: Callable[[AnyPath], T], files: Iterable[AnyPath]) -> list[T]:
    """Return the function's results, in the files' order; files of other stores are read many at a time."""
    files = list(files)
    if not any(map(is_remote, files)):
        return list(map(function, files))
    with concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="sparrow-remote") as pool:
        return list(pool.map(function, files))


def _parts(file: AnyPath) -> bytes:
    try:
        with file.open("rb") as opened:
            return repr(file.name).encode() + b"".join(_blocks(opened))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", str(file)) from None


def _blocks(opened: BinaryIO) -> Iterator[bytes]:
    size = opened.seek(0, os.SEEK_END)
    yield size.to_bytes(8, "little")
    if size <= WHOLE:
        opened.seek(0)
        yield opened.read()
        return
    for i in range(BLOCKS):
        opened.seek((size - BLOCK) * i // (BLOCKS - 1))
        yield opened.read(BLOCK)
    opened.seek(size - 8)
    end = opened.read(8)
    if end[4:] in _MAGIC:
        opened.seek(max(0, size - 8 - int.from_bytes(end[:4], "little")))
        yield opened.read()
