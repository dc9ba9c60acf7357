"""A folder that appears whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

from sparrow.checkpoint.manifest import sync
from sparrow.data import DataError
from sparrow.serving.description import NAME


def refuse(folder: str | Path, overwrite: bool) -> None:
    """Raises unless an export may be written to ``folder``. Only an export, or nothing, is ever replaced."""
    folder = Path(folder)
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / NAME).is_file():
        raise DataError("is there already, and is not an export; choose another folder", str(folder))
    if not overwrite:
        raise DataError("is an export already; choose another folder, or add --overwrite", str(folder))


@contextlib.contextmanager
def whole(folder: Path, overwrite: bool) -> Iterator[Path]:
    """Gives a hidden folder beside ``folder`` to write into. It takes that name when the block ends without an error.

    What an interrupted export left there is removed by the next one.
    """
    folder = folder.absolute()
    refuse(folder, overwrite)
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f".{folder.name}.lock"), folder):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            try:
                yield partial
                _replace(folder, partial)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror or error}", str(folder)) from None


@contextlib.contextmanager
def _locked(path: Path, folder: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError("another export is being written there; wait for it", str(folder)) from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _replace(folder: Path, partial: Path) -> None:
    sync(partial)
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():  # a folder cannot be replaced in one step: the old one steps aside, and comes back on an error
        folder.rename(old)
    try:
        partial.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)
