"""A folder that appears complete or not at all, and is replaced in one step.

The new export is written next to the old one, every file and folder is synced to the disk, and the two swap names
(``renameat2`` with ``RENAME_EXCHANGE``): the name holds the complete old export or the complete new one at every
moment. A file system without that call (NFS, some FUSE file systems, systems other than Linux) allows two renames only:
between them the name is missing for an instant, and after a crash right there the next export restores the old one.

The file ``.name.lock`` lies next to the export's folder ``name`` while an export is written: locked by its process,
with the names of the hidden folders that it makes, one per line. The next export removes those that a crash left;
folders that are on no list are never touched.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple

from sparrow.data import DataError
from sparrow.exports.contents import foreign_files
from sparrow.files import AnyPath, Remote, at, exchange, send_folder, sync
from sparrow.serving.description import NAME

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


def refuse(folder: str | AnyPath, overwrite: bool) -> None:
    """Raise `DataError` unless an export may be written to ``folder``. Only an export, or nothing, is ever replaced."""
    given = at(folder)
    with _one_line(given):
        _refuse(_real(given) if isinstance(given, Path) else given, overwrite)


@contextlib.contextmanager
def whole(folder: AnyPath, overwrite: bool) -> Iterator[Path]:
    """Yield a hidden folder to write into. It takes the name ``folder`` when the block ends without an error.

    A symlink is followed, and stays. Leftovers of an interrupted export are removed. A folder of another store is made
    here first; its description is sent last, and readers compare all files with it.
    """
    with _one_line(folder):
        if isinstance(folder, Remote):
            _refuse(folder, overwrite)
            with tempfile.TemporaryDirectory(prefix="sparrow-") as made:
                yield Path(made)
                send_folder(Path(made), folder)
            return
        folder = _real(folder)
        _refuse(folder, overwrite)
        for path in [path for path in reversed(folder.parents) if not path.exists()]:
            path.mkdir(exist_ok=True)
            sync(path.parent)
        with in_work(folder) as names:
            _refuse(folder, overwrite)  # again: a killed export may have left an old one that has its name back
            names.partial.mkdir()
            yield names.partial
            for path in (*names.partial.rglob("*"), names.partial):
                sync(path)
            if folder.exists():
                names.partial.chmod(folder.stat().st_mode & 0o7777)
            _put(names, folder)


def _put(names: Names, folder: Path) -> None:
    """Give the new folder its name; an old one is under one of ``names`` afterwards."""
    try:
        names.partial.rename(folder)  # where there is none, or an empty one
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not exchange(names.partial, folder):
            folder.rename(names.old)
            try:
                names.partial.rename(folder)
            except BaseException:
                names.old.rename(folder)
                raise
    sync(folder.parent)


def _real(folder: Path) -> Path:
    """Return the folder itself, where the path leads through symlinks."""
    real = Path(os.path.realpath(folder))
    if real.is_symlink():
        raise DataError("is a symlink that leads in a circle; remove it", str(folder))
    if not real.name:
        raise DataError("is the root of the file system; choose a folder in it", str(folder))
    return real


def _refuse(folder: AnyPath, overwrite: bool) -> None:
    if not folder.exists():
        return
    if isinstance(folder, Path) and folder.is_dir() and os.path.ismount(folder):
        raise DataError("is a mount point, which cannot be replaced; export to a folder in it", str(folder))
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if not (folder / NAME).is_file():
        raise DataError("is there already, and is not an export; choose another folder", str(folder))
    if not overwrite:
        raise DataError(
            "is an export already; choose another folder, or add --overwrite (in Python, overwrite=True)", str(folder)
        )
    if foreign := foreign_files(folder):
        shown = ", ".join(foreign[:3]) + ", ..." * (len(foreign) > 3)
        raise DataError(f"holds files that no export wrote ({shown}); move them elsewhere", str(folder))


@contextlib.contextmanager
def _one_line(folder: AnyPath) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror or error}", str(folder)) from None
