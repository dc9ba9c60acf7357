"""A folder that appears whole or not at all, and is replaced in one step.

The new export is written next to the old one, every file and folder is synced to the disk, and the two swap names
(``renameat2`` with ``RENAME_EXCHANGE``): under the name there is the whole old export or the whole new one at every
moment. A file system without that call (NFS, some FUSE file systems, systems other than Linux) allows two renames only:
between them the name is missing for an instant, and after a crash right there the next export gives the old one its
name back. A crash at any moment leaves at most hidden folders, which the next export to the same name removes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sparrow.data import DataError
from sparrow.exports.contents import foreign_files
from sparrow.exports.journal import Names, in_work
from sparrow.files import AnyPath, Remote, at, exchange, send_folder, sync
from sparrow.serving.description import NAME


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
        _make_parents(folder)
        with in_work(folder) as names:
            _refuse(folder, overwrite)  # again: a killed export may have left an old one that has its name back
            names.partial.mkdir()
            yield names.partial
            _sync_tree(names.partial)
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


def _make_parents(folder: Path) -> None:
    missing = [path for path in folder.parents if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync(path.parent)


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


@contextlib.contextmanager
def _one_line(folder: AnyPath) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror or error}", str(folder)) from None
