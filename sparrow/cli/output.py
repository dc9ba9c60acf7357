"""Lines of results on the standard output, and of errors on the standard error."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import sys
from collections.abc import Callable
from typing import Final

FAILED: Final = 1
USER_ERROR: Final = 2
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
"""Variables that number the processes of a group."""


class Mistake(ValueError):
    """A mistake in the arguments of a command."""


@dataclasses.dataclass
class Output:
    """The output of this process.

    Attributes:
      is_quiet: whether only results and errors are written.
      is_silent: whether no results are: of several processes, the first writes them.
      listener: called with the text and the exit code of each error.
    """

    is_quiet: bool = False
    is_silent: bool = False
    listener: Callable[[str, int], None] = lambda text, code: None


OUTPUT: Final = Output()


def begin(line: str) -> None:
    """Write the first line of a command; of several processes, the first writes it."""
    if not OUTPUT.is_quiet and all(os.environ.get(name, "0") == "0" for name in RANKS):
        with contextlib.suppress(OSError):
            out(line)


def out(text: str, end: str = "\n") -> None:
    """Write a result to the standard output."""
    if OUTPUT.is_silent:
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
    if not OUTPUT.is_quiet:
        print(line, file=sys.stderr)


def error_lines(text: object, code: int) -> int:
    """Write each line of an error to the standard error, and return the exit code."""
    OUTPUT.listener(str(text), code)
    with contextlib.suppress(OSError, ValueError):
        for line in str(text).splitlines():
            print(f"sparrow: {line}", file=sys.stderr)
    return code
