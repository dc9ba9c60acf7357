"""The files of an export at one moment: read or held open, so that replacing the folder changes nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from sparrow.data import DataError
from sparrow.files import AnyPath, Remote, UnsafePath, fetched, inside
from sparrow.serving.description import NAME, Description
from sparrow.serving.tensors import Fingerprint, fingerprint

ATTEMPTS: Final = 20
"""An export that is replaced while it is opened is opened again, ATTEMPTS times at most."""


@dataclasses.dataclass(frozen=True)
class Opened:
    """An export whose files are open.

    Attributes:
      folder: the folder of the export.
      description: the content of ``export.json``.
      files: the files by path in the export, each of the declared size.
    """

    folder: Path
    description: Description
    files: Mapping[str, BinaryIO]

    def __getitem__(self, name: str) -> BinaryIO:
        if name not in self.files:
            raise DataError(f"does not list the file '{name}', which it needs; export again", str(self.folder / NAME))
        return self.files[name]

    def read(self, name: str) -> bytes:
        """Return the content of a file, compared with its checksum."""
        data = self[name].read()
        if Fingerprint(len(data), hashlib.sha256(data).hexdigest()) != self.description.files[name]:
            raise _damaged(self.folder / name)
        return data

    def verify(self, name: str) -> None:
        """Read a file through and compare it with its checksum."""
        file = self[name]
        if fingerprint(file) != self.description.files[name]:
            raise _damaged(self.folder / name)
        file.seek(0)


@contextlib.contextmanager
def opened(given: AnyPath) -> Iterator[Opened]:
    """Open all files of the export that is in a folder now, or raise one `DataError`."""
    with contextlib.ExitStack() as stack:
        folder = _here(given, stack)
        for attempt in range(ATTEMPTS):
            with _kept(folder) as before:
                try:
                    held = _open_all(folder, stack)
                except DataError:
                    if _identity(folder) == before or attempt == ATTEMPTS - 1:
                        raise
                else:
                    if _identity(folder) == before:
                        break
            time.sleep(0.01)
        yield held


def _open_all(folder: Path, stack: contextlib.ExitStack) -> Opened:
    description = Description.read(folder)
    files = {}
    for name, expected in description.files.items():
        try:
            path = inside(folder, name)
        except UnsafePath as error:
            raise DataError(f"lists a file of another place: {error}", str(folder / NAME)) from None
        try:
            if not path.is_file():  # not a device or a pipe, which may never end
                raise DataError("the export lacks this file; export again", str(path))
            files[name] = stack.enter_context(path.open("rb"))
            size = os.fstat(files[name].fileno()).st_size
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror or error}", str(path)) from None
        if size != expected.bytes:
            raise DataError(f"holds {size} bytes and was written with {expected.bytes}; export again", str(path))
    return Opened(folder, description, files)


def _here(given: AnyPath, stack: contextlib.ExitStack) -> Path:
    """Return the folder of an export: for one of another store a copy, all of whose files are as they are described."""
    for attempt in range(ATTEMPTS):
        try:
            folder = stack.enter_context(fetched(given))
            if isinstance(given, Remote):
                with contextlib.ExitStack() as files:
                    held = _open_all(folder, files)
                    for name in held.files:
                        held.verify(name)
            return folder
        except OSError as error:
            if attempt == ATTEMPTS - 1 or not isinstance(error, FileNotFoundError):
                raise DataError(f"cannot be read: {error}", str(given)) from None
        except DataError as error:
            if attempt == ATTEMPTS - 1 or not (given / NAME).exists():
                raise DataError(error.why, str(given)) from None
        time.sleep(0.25)  # it is being replaced
    raise AssertionError


@contextlib.contextmanager
def _kept(folder: Path) -> Iterator[tuple[int, int] | None]:
    """Yield the identity of a folder that is held open: no other one gets its number meanwhile."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        yield None
        return
    try:
        yield _of(os.fstat(handle))
    finally:
        os.close(handle)


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        return _of(folder.stat())
    except OSError:
        return None


def _of(held: os.stat_result) -> tuple[int, int]:
    return held.st_dev, held.st_ino


def _damaged(path: Path) -> DataError:
    return DataError("is damaged: its checksum is not the one it was written with; export again", str(path))
