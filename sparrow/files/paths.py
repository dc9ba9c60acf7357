"""Paths that a file or a user names: inside of their folder, with the ending of their format; objects in files."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath
from typing import Any, Final

from sparrow.errors import ConfigError, DataError
from sparrow.files.remote import AnyPath


def text_of(path: AnyPath, error: type[ConfigError | DataError]) -> str:
    """Return the text of a file in UTF-8, or raise an ``error`` with its name."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as why:
        raise error(why.strerror or str(why), str(path)) from None
    except UnicodeDecodeError:
        raise error("is not a text file in UTF-8", str(path)) from None


TEXT_SUFFIXES: Final = (".csv", ".tsv", ".txt", ".json", ".jsonl")


class UnsafePath(ValueError):
    """A path that leaves its folder, or is none; one sentence."""


def inside(folder: Path, name: Any) -> Path:
    """Return the path of ``name`` in ``folder``, where neither ``..`` nor a symlink leads out; else `UnsafePath`.

    >>> inside(Path("exported"), "vocabularies/0_item.txt").as_posix()
    'exported/vocabularies/0_item.txt'
    >>> inside(Path("exported"), "../../etc/passwd")
    Traceback (most recent call last):
    sparrow.files.paths.UnsafePath: '../../etc/passwd' leads out of its folder
    """
    if not isinstance(name, str) or not name:
        raise UnsafePath(f"{name!r} is not a relative path")
    pure = PurePosixPath(name)
    if pure.is_absolute() or Path(name).is_absolute():
        raise UnsafePath(f"{name!r} is an absolute path; only paths in its folder are read")
    if ".." in pure.parts or not pure.parts:
        raise UnsafePath(f"{name!r} leads out of its folder")
    path = folder / name
    try:
        root, real = os.path.realpath(folder), os.path.realpath(path)
    except (OSError, ValueError) as error:  # names that the file system cannot hold
        raise UnsafePath(f"{name!r} is not a path here: {error}") from None
    if os.path.commonpath([root, real]) != root:
        raise UnsafePath(f"{name!r} is a symlink that leads out of its folder")
    return path


def check_parquet(path: AnyPath) -> None:
    """Raise `DataError` where the ending of a file to write promises another format than Parquet.

    >>> check_parquet(Path("scores.csv"))
    Traceback (most recent call last):
    sparrow.errors.DataError: scores.csv: would be a Parquet file; choose a name that ends with .parquet
    """
    if path.suffix in TEXT_SUFFIXES:
        raise DataError("would be a Parquet file; choose a name that ends with .parquet", str(path))


def json_object(path: Path) -> dict[str, Any]:
    """Return the object that a file holds; an empty one where it cannot be read, or holds something else."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return held if isinstance(held, dict) else {}
