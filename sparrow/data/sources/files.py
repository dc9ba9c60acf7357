"""The files of a source, from paths, folders and globs."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sparrow.data.errors import DataError

PACKED: Final = (".gz", ".bz2", ".zst")
"""Suffixes of packed text files that can be read."""
REFUSED: Final = (".xz", ".zip", ".7z", ".tar", ".tgz")


def is_packed(file: Path) -> bool:
    """Return whether its suffix is that of a packed file."""
    return file.suffix.lower() in PACKED


def find_files(paths: str | Sequence[str], suffixes: Sequence[str], may_be_packed: bool = False) -> list[Path]:
    """Return the files of a path, a folder (with one of ``suffixes``), a glob, or several of these; sorted in each.

    Where they ``may_be_packed``, "clicks.csv.gz" is a file that ends in ".csv". Hidden files and files that start with
    an underscore are left out of folders: data tools mark their own files so.
    """
    given = [paths] if isinstance(paths, str) else list(paths)
    if not given:
        raise DataError("no path is given; name a file, a folder or a pattern such as 'clicks/*.parquet'")
    files: list[Path] = []
    for path in given:
        files += _files_of(str(path), suffixes, may_be_packed)
    for file in files:
        if file.suffix.lower() in REFUSED or (is_packed(file) and not may_be_packed):
            raise DataError("the file is compressed; unpack it first, so that it can be read from any place", str(file))
        if file.stat().st_size == 0:
            raise DataError("the file is empty; remove it, or name the files one by one", str(file))
    return files


def _files_of(path: str, suffixes: Sequence[str], may_be_packed: bool) -> list[Path]:
    if Path(path).is_file():
        return [Path(path)]
    if Path(path).is_dir():
        found = sorted(
            file
            for file in Path(path).rglob("*")
            if file.is_file() and _suffix(file, may_be_packed) in suffixes and not file.name.startswith((".", "_"))
        )
        if not found:
            raise DataError(f"the folder holds no file that ends in {' or '.join(suffixes)}", path)
        return found
    if glob.has_magic(path):
        found = sorted(Path(file) for file in glob.glob(path, recursive=True) if Path(file).is_file())
        if not found:
            raise DataError("no file matches the pattern", path)
        return found
    raise DataError("there is no such file or folder", path)


def _suffix(file: Path, may_be_packed: bool) -> str:
    return (Path(file.stem) if may_be_packed and is_packed(file) else file).suffix.lower()
