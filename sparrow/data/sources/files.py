"""The files of a source, from paths, folders and globs."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from sparrow.data.errors import DataError
from sparrow.files import AnyPath, at, matching

PACKED: Final = (".gz", ".bz2", ".zst")
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
    if not given:
        raise DataError("no path is given; name a file, a folder or a pattern such as 'clicks/*.parquet'")
    files: list[AnyPath] = []
    for path in given:
        files += _files_of(str(path), suffixes, may_be_packed)
    for file in files:
        if file.suffix.lower() in REFUSED or (is_packed(file) and not may_be_packed):
            raise DataError("the file is compressed; unpack it first, so that it can be read from any place", str(file))
        if file.stat().st_size == 0:
            raise DataError("the file is empty; remove it, or name the files one by one", str(file))
    return files


def _files_of(path: str, suffixes: Sequence[str], may_be_packed: bool) -> list[AnyPath]:
    try:
        return _found(path, suffixes, may_be_packed)
    except OSError as error:
        raise DataError(f"cannot be read: {error}", path) from None


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
