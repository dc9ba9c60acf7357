"""`Appended`: a file that grows by complete pieces."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class Appended:
    """A file that pieces are added to. A piece that does not fit on the disk leaves no part, and raises `OSError`."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        """Open the file; a ``new`` one must not exist."""
        self._path = path
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | (os.O_EXCL if new else 0)
        self._descriptor = os.open(path, flags, 0o666)
        self._length = os.fstat(self._descriptor).st_size

    def add(self, piece: bytes) -> None:
        """Write a piece."""
        view = memoryview(piece)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._length)
            raise OSError(error.errno, error.strerror, str(self._path)) from None
        self._length += len(piece)

    def close(self) -> None:
        """Close it. Where the file system reports a lost piece, do not try again."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)
