"""`PartFile`: the rows that one process writes into the files of a checkpoint, and the list of them."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparrow import processes
from sparrow.checkpoint.blocks import Array, as_bytes, header_of
from sparrow.checkpoint.errors import sentence
from sparrow.checkpoint.extents import Extent, add
from sparrow.files import sync, write_durably


class PartFile:
    """Writer of a process's rows. After an error nothing more is written, and `finish` returns the reason."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._extents: dict[str, list[Extent]] = {}
        self._error: OSError | None = None

    @staticmethod
    def all(folder: Path) -> list[Path]:
        """Return the lists of all processes."""
        return [folder / f"part-{number}.json" for number in range(processes.count())]

    def write(self, file: str, shape: tuple[int, ...], dtype: Any, pieces: Iterator[tuple[int, Array]]) -> None:
        """Write pieces of a table, each with its first row; the file has its size already."""
        header = header_of(shape, dtype)
        extents = self._extents.setdefault(file, [])
        if processes.is_first():
            extents.append(Extent(0, len(header), zlib.crc32(header)))
        descriptor = self._opened(file)
        try:
            for first, rows in pieces:
                data: Any = as_bytes(rows)
                row_bytes = len(data) // max(len(rows), 1)
                place = len(header) + first * row_bytes
                if descriptor is not None and self._error is None:
                    self._put(descriptor, file, data, place)
                add(extents, Extent(place, len(data), zlib.crc32(data)))
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def finish(self) -> str | None:
        """Flush the files to the disk and write the list; return the reason of the first failure, if any."""
        try:
            if self._error is not None:
                raise self._error
            for file in self._extents:
                sync(self._folder / file)
            write_durably(self.all(self._folder)[processes.index()], json.dumps(self._extents).encode())
        except OSError as error:
            return sentence(error)
        return None

    def _opened(self, file: str) -> int | None:
        try:
            return os.open(self._folder / file, os.O_WRONLY)
        except OSError as error:
            self._error = self._error or error
            return None

    def _put(self, descriptor: int, file: str, data: Any, place: int) -> None:
        view = memoryview(data)
        try:
            while view:
                done = os.pwrite(descriptor, view, place)
                view, place = view[done:], place + done
        except OSError as error:
            self._error = OSError(error.errno, error.strerror, str(self._folder / file))
