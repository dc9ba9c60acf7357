"""Errors of checkpoints."""

from __future__ import annotations

import errno
import os
from typing import Final

OWN_LIMITS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Failures of the reading process instead of the files."""


class CheckpointError(ValueError):
    """A checkpoint that is not there, cannot be written, or does not fit; one sentence."""


class Damaged(CheckpointError):
    """A checkpoint whose files differ from the ones that were written, or cannot be read."""


class Vanished(CheckpointError):
    """A checkpoint that its run removed, as an old one, before it was read."""


def unreadable(path: str | os.PathLike[str], error: OSError) -> CheckpointError:
    """Return the error to raise for a file of a checkpoint that the operating system cannot read.

    >>> unreadable("run/checkpoints/7", OSError(errno.EIO, os.strerror(errno.EIO)))
    Damaged('run/checkpoints/7: cannot be read: Input/output error')
    """
    if isinstance(error, FileNotFoundError):
        return Damaged(f"{os.fspath(path)}: it is missing")
    kind = CheckpointError if error.errno in OWN_LIMITS else Damaged
    return kind(f"{os.fspath(path)}: cannot be read: {error.strerror or error}")


def altered(path: str | os.PathLike[str]) -> Damaged:
    """Return the error to raise for a file with another content than the one that was written."""
    return Damaged(f"{os.fspath(path)}: its bytes are not the ones that were written")


def sentence(error: BaseException) -> str:
    """Return the reason of a failure in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return "the disk is full" if error.errno == errno.ENOSPC else f"{error.filename or ''} {error.strerror}".strip()
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
