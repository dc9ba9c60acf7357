"""Writing so that a crash at any moment leaves the old file or the new one."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from sparrow.files.remote import AnyPath, Remote

PARTIAL: Final = ".partial"
STALE_SECONDS: Final = 3600.0
"""A partial file of this age is a leftover of a writer that was killed."""

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_NOT_SUPPORTED: Final = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network and FUSE file systems cannot sync a folder; they keep names in order by themselves.
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP) or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def write_durably(path: Path, data: bytes) -> None:
    """Write a file and wait for the disk. A crash may leave half of it: use `replace_file` for a name that is read."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: AnyPath, data: bytes, *, durable: bool = True, mode: int = 0o666) -> None:
    """Write a file that holds the old content or the new, never half of it; a symlink is followed and stays.

    Args:
      path: the file.
      data: its new content.
      durable: whether to wait for the disk.
      mode: permissions of the new file, less the umask.
    """
    if isinstance(path, Remote):
        path.write_bytes(data)
        return
    with (
        replacing(path, durable=durable) as partial,
        open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file,
    ):
        file.write(data)


@contextlib.contextmanager
def replacing(path: AnyPath, *, durable: bool = True) -> Iterator[Path]:
    """Yield a hidden path to write to; the file replaces ``path`` when the block ends without an error.

    A symlink is followed and stays. Several processes may write the same file at a time: one of them wins. A leftover
    of a killed writer is removed. A file of another store is written here first.
    """
    if isinstance(path, Remote):
        with tempfile.TemporaryDirectory(prefix="sparrow-") as folder:
            yield Path(folder) / path.name
            path.send(Path(folder) / path.name)
        return
    path = Path(os.path.realpath(path))
    _sweep(path)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        yield partial
        if durable:
            sync(partial)
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def exchange(a: Path, b: Path) -> bool:
    """Swap the names of two files or folders in one step; False where the system or the file system cannot.

    Any other failure, such as a missing file, raises `OSError`.
    """
    rename = _renameat2()
    if rename is None:
        return False
    ctypes.set_errno(0)
    if rename(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_SUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(a), None, str(b))


@functools.cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    """Return the system call, through the C library; None: there is none."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    function.restype = ctypes.c_int
    return function


def _sweep(path: Path) -> None:
    """Remove leftovers of killed writers of this file."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(path.parent):
            ours = entry.name.startswith(f".{path.name}.") and entry.name.endswith(PARTIAL)
            if ours and time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_SECONDS:
                os.unlink(entry.path)
