"""Fingerprints of files by their content, quick for files of any size.

They cover the size of a file, all bytes of one of up to `WHOLE` bytes, and `BLOCKS` blocks of `BLOCK` bytes of a larger
one, at even distances, the first and the last among them; for Parquet also the complete footer, which holds the
statistics and offsets of every column in every row group. A rewrite of the same size is found unless it changes only
bytes of a large file between the blocks and, in Parquet, leaves all statistics and compressed sizes unchanged.
Dates and folders are not covered: a copy of the data is the same data.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Final

from sparrow.data.errors import DataError

BLOCK: Final = 4096
BLOCKS: Final = 16
WHOLE: Final = 256 * 1024
_MAGIC: Final = (b"PAR1", b"PARE")


def fingerprint(files: Iterable[Path], *facts: Any) -> str:
    """Return the fingerprint of files, in their order, and of ``facts``, which also decide their rows."""
    digest = hashlib.sha256(repr(facts).encode())
    for file in files:
        digest.update(repr(file.name).encode())
        try:
            with file.open("rb") as opened:
                _add(opened, digest)
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror or error}", str(file)) from None
    return digest.hexdigest()[:16]


def _add(opened: BinaryIO, digest: Any) -> None:
    size = opened.seek(0, os.SEEK_END)
    digest.update(size.to_bytes(8, "little"))
    if size <= WHOLE:
        opened.seek(0)
        digest.update(opened.read())
        return
    for i in range(BLOCKS):
        opened.seek((size - BLOCK) * i // (BLOCKS - 1))
        digest.update(opened.read(BLOCK))
    opened.seek(size - 8)
    end = opened.read(8)
    if end[4:] in _MAGIC:
        opened.seek(max(0, size - 8 - int.from_bytes(end[:4], "little")))
        digest.update(opened.read())
