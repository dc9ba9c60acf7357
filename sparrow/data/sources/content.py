"""Fingerprints of files by their content, quick for files of any size.

They cover the size of a file, all bytes of one of up to `WHOLE` bytes, and `BLOCKS` blocks of `BLOCK` bytes of a larger
one, at even distances, the first and the last among them; for Parquet also the complete footer, which holds the
statistics and offsets of every column in every row group. A rewrite of the same size is found unless it changes only
bytes of a large file between the blocks and, in Parquet, leaves all statistics and compressed sizes unchanged.
Dates and folders are not covered: a copy of the data is the same data.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Final, TypeVar

from sparrow.data.errors import DataError
from sparrow.files import AnyPath, is_remote

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
