"""Lines of results on the standard output, and of errors on the standard error."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from typing import Final

_listeners: list[Callable[[str, int], None]] = []
_silent: list[bool] = []
_quiet: list[bool] = []
FAILED: Final = 1
USER_ERROR: Final = 2
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
"""Variables that number the processes of a group."""


class Mistake(ValueError):
    """A mistake in the arguments of a command."""


def silence() -> None:
    """Write no results from now on: of several processes, the first writes them."""
    _silent.append(True)


def tell_errors_to(listener: Callable[[str, int], None]) -> None:
    """Call ``listener`` with the text and the exit code of each error."""
    _listeners.append(listener)


def set_quiet(is_quiet: bool) -> None:
    """Choose whether only results and errors are written."""
    _quiet[:] = [True] * is_quiet


def is_quiet() -> bool:
    """Return whether only results and errors are written."""
    return bool(_quiet)


def begin(line: str) -> None:
    """Write the first line of a command; of several processes, the first writes it."""
    if not _quiet and all(os.environ.get(name, "0") == "0" for name in RANKS):
        with contextlib.suppress(OSError):
            out(line)


def out(text: str, end: str = "\n") -> None:
    """Write a result to the standard output."""
    if _silent:
        return
    if sys.stdout is None:
        raise OSError(errno.EBADF, "is closed", "the standard output")
    try:
        print(text, end=end, flush=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, "the standard output") from None
    except ValueError:
        raise OSError(errno.EBADF, "is closed", "the standard output") from None


def note(line: str) -> None:
    """Write a line that is not a result to the standard error."""
    if not _quiet:
        print(line, file=sys.stderr)


def error_lines(text: object, code: int) -> int:
    """Write each line of an error to the standard error, and return the exit code."""
    for tell in _listeners:
        tell(str(text), code)
    with contextlib.suppress(OSError, ValueError):
        for line in str(text).splitlines():
            print(f"sparrow: {line}", file=sys.stderr)
    return code
