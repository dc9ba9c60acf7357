"""The list of the hidden folders of an unfinished export: the next export removes the leftovers of a killed one.

The file ``.name.lock`` lies next to the export's folder ``name`` while an export is written: locked by its process,
with the names of the folders that it makes, one a line. Folders that are on no list are never touched.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple

from sparrow.data import DataError
from sparrow.files import sync

_NO_LOCKS: Final = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class Names(NamedTuple):
    """The hidden folders of one export: the new one while it is written, and a place for the one that it replaces."""

    partial: Path
    old: Path


@contextlib.contextmanager
def in_work(folder: Path) -> Iterator[Names]:
    """Yield hidden names next to ``folder``, and remove the folders under them at the end.

    Before that, remove leftovers of a killed export: the old export gets its name back if there is none of that name.
    """
    lock = folder.with_name(f".{folder.name}.lock")
    with _locked(lock, folder) as file:
        stem = f".{folder.name}.{secrets.token_hex(4)}"
        names = Names(folder.with_name(f"{stem}.partial"), folder.with_name(f"{stem}.old"))
        if file is not None:
            left = _recover(file.read(), folder)
            _write(file, [*left, *names])
            sync(lock.parent)
        try:
            yield names
        finally:
            if not folder.exists() and names.old.exists():  # both renames failed
                with contextlib.suppress(OSError):
                    names.old.rename(folder)
            for path in names:
                shutil.rmtree(path, ignore_errors=True)
            if file is not None and not any(path.exists() for path in (*left, *names)):
                with contextlib.suppress(OSError):
                    lock.unlink()


def _recover(text: str, folder: Path) -> list[Path]:
    """Remove the folders of killed exports, and return the ones that could not be removed."""
    ours = re.compile(re.escape(f".{folder.name}.") + r"[0-9a-f]{8}\.(partial|old)")
    paths = [folder.with_name(name) for name in text.splitlines() if ours.fullmatch(name)]
    for path in paths:
        if path.suffix == ".old" and path.is_dir() and not folder.exists():
            path.rename(folder)
            sync(folder.parent)
        shutil.rmtree(path, ignore_errors=True)
    return [path for path in paths if path.exists()]


def _write(file: IO[str], paths: list[Path]) -> None:
    file.seek(0)
    file.truncate()
    file.writelines(f"{path.name}\n" for path in paths)
    file.flush()
    os.fsync(file.fileno())


@contextlib.contextmanager
def _locked(path: Path, folder: Path) -> Iterator[IO[str] | None]:
    """Yield the locked list; None on a file system without locks, where leftovers look like exports in progress."""
    while True:
        with path.open("a+", encoding="utf-8", errors="surrogateescape") as file:
            file.seek(0)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DataError("another export is being written there; wait for it", str(folder)) from None
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                path.unlink(missing_ok=True)
                yield None
                return
            if _is_at(file, path):  # else its previous owner has removed it in the meantime
                yield file
                return


def _is_at(file: IO[str], path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False
