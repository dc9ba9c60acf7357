"""The folder on disk where compiled code is kept between processes, and from which only the user's own code is loaded.

An entry is one file, ``<stem>.<digest><suffix>``: the caller's name, a hash of all that the code was made from, and the
SHA-256 of the file's own bytes. It appears complete or not at all, and one that was cut off or changed is removed and
made again. Code of others is never loaded: the folder and its entries belong to this user, and no other user may write
them or move a folder above them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path, PurePath
from typing import Final

from sparrow.files import replace_file

VARIABLE: Final = "SPARROW_CACHE_DIR"


class CacheError(RuntimeError):
    """A cache folder that cannot be used; one sentence, with the reason and the remedy."""


def folder() -> Path:
    """``$SPARROW_CACHE_DIR``, or ``sparrow`` in the user's cache folder; for a user without a home, one below /tmp."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    if (base := os.environ.get("XDG_CACHE_HOME")) and os.path.isabs(base):
        return Path(base) / "sparrow"
    # Path.home() raises where there is neither HOME nor an entry for this user in the list of users.
    with contextlib.suppress(RuntimeError):
        home = Path.home()
        if home.is_absolute() and (os.access(home, os.W_OK) or os.access(home / ".cache", os.W_OK)):
            return home / ".cache" / "sparrow"
    return Path(tempfile.gettempdir()) / f"sparrow-{os.geteuid()}"


def find(name: str) -> Path | None:
    """Return the path of the complete entry ``name``; None: there is none. Raise `CacheError` in an unsafe folder.

    The checked file is the one that is loaded: no other user can change it in between.
    """
    at = folder()
    if not os.path.lexists(at):
        return None
    check_owned(at)
    for path in _entries(at, name):
        if (data := _owned_bytes(path)) is not None and _entry(name, data) == path.name:
            return path
        discard(path)
    return None


def read(name: str) -> bytes | None:
    """Return the content of the entry ``name``, as it was written; None: there is none."""
    path = find(name)
    return path.read_bytes() if path is not None else None


def keep(name: str, data: bytes) -> Path:
    """Write the entry ``name`` and give its path; `CacheError` where that cannot be done."""
    at = folder()
    try:
        _make(at)
        check_owned(at)
        path = at / _entry(name, data)
        replace_file(path, data, durable=False, mode=0o600)
    except OSError as error:
        raise CacheError(f"cannot write {at}: {error.strerror or error}; set {VARIABLE}") from None
    return path


def own_folder(name: str) -> Path:
    """Return a folder inside the cache that only this user can change, made where it is missing."""
    at = folder() / name
    try:
        _make(at.parent)
        check_owned(at.parent)
        _make(at)
    except OSError as error:
        raise CacheError(f"cannot write {at}: {error.strerror or error}; set {VARIABLE}") from None
    check_owned(at)
    return at


def discard(path: Path) -> None:
    """Remove an entry that is of no use."""
    with contextlib.suppress(OSError):
        path.unlink()


def check_owned(at: Path) -> None:
    """Raise `CacheError` unless only this user, and root, can change ``at`` or replace it."""
    real = Path(os.path.realpath(at))
    try:
        held = real.stat()
        if not stat.S_ISDIR(held.st_mode):
            raise CacheError(f"{at} is not a folder; remove it, or set {VARIABLE}")
        for path in (real, *real.parents):
            held = path.stat()
            if held.st_uid != os.geteuid() and (path == real or held.st_uid != 0):
                raise CacheError(f"{path} belongs to another user, so no code is loaded from there; set {VARIABLE}")
            # In a sticky folder, such as /tmp, only its owner can move an entry.
            if held.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and (path == real or not held.st_mode & stat.S_ISVTX):
                remedy = f"run chmod go-w {path}, or set {VARIABLE}"
                raise CacheError(f"others may write {path}, so no code is loaded from there; {remedy}")
    except OSError as error:
        raise CacheError(f"cannot read {at}: {error.strerror or error}; set {VARIABLE}") from None


def _make(at: Path) -> None:
    """Create the folder and its parents, so that no other user may write them, with any umask."""
    missing = [path for path in at.parents if not os.path.lexists(path)]
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o755)
    with contextlib.suppress(FileExistsError):
        at.mkdir(mode=0o700)


def _owned_bytes(path: Path) -> bytes | None:
    """Return the content of a plain file that this user owns and no other user may write."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            held = os.fstat(descriptor)
            ours = held.st_uid == os.geteuid() and not held.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            return file.read() if stat.S_ISREG(held.st_mode) and ours else None
    except OSError:
        return None


def _entries(at: Path, name: str) -> list[Path]:
    pure = PurePath(name)
    try:
        names = os.listdir(at)
    except OSError as error:
        raise CacheError(f"cannot read {at}: {error.strerror or error}; set {VARIABLE}") from None
    return sorted(at / held for held in names if held.startswith(f"{pure.stem}.") and held.endswith(pure.suffix))


def _entry(name: str, data: bytes) -> str:
    """Return the file name of an entry.

    >>> _entry("lookup-90a.cubin", b"")
    'lookup-90a.e3b0c44298fc1c149afbf4c8996fb924.cubin'
    """
    pure = PurePath(name)
    return f"{pure.stem}.{hashlib.sha256(data).hexdigest()[:32]}{pure.suffix}"
