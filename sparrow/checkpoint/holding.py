"""Readers and the writer of checkpoints: the folder that a reader holds is not removed.

A reader holds a shared lock on the checkpoint's folder, the writer takes an exclusive one before it removes it. The
lock is the operating system's own and ends with its process. Where the file system keeps no locks, a reader that finds
its folder gone (`Vanished`) continues with the next checkpoint.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path

from sparrow.checkpoint.errors import Vanished, unreadable


class Hold:
    """A hold on a checkpoint's folder: it stays on the disk until `release`, or until this object is deleted."""

    def __init__(self, path: Path) -> None:
        """Open the folder, or raise `Vanished` where it was removed and `Damaged` where it cannot be opened."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            raise Vanished(f"{path}: was removed") from None
        except OSError as error:
            raise unreadable(path, error) from None
        self.release = weakref.finalize(self, os.close, descriptor)
        if not _locked(descriptor, fcntl.LOCK_SH) or not _is_at(descriptor, path):
            self.release()
            raise Vanished(f"{path}: was removed")


def remove(path: Path, doomed: Path) -> bool:
    """Remove a checkpoint, renamed to ``doomed`` first; return False where a reader holds it.

    A folder under a step's name is always complete, because it is renamed first. Raises `OSError` for a folder that
    cannot be renamed; files that cannot be removed stay under the name ``doomed``.
    """
    with _alone(path) as is_free:
        if is_free:
            shutil.rmtree(doomed, ignore_errors=True)
            os.rename(path, doomed)
            shutil.rmtree(doomed, ignore_errors=True)
    return is_free


def is_held(path: Path) -> bool:
    """Return whether a reader holds a checkpoint now."""
    with contextlib.suppress(OSError), _alone(path) as is_free:
        return not is_free
    return False


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Hold the folder alone inside the block, and yield True; or yield False where a reader holds it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield _locked(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def _locked(descriptor: int, kind: int) -> bool:
    """Lock the folder and return True, or return False where another lock forbids it; True where there are no locks."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether the opened folder still has its name."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False
