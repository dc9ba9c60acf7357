"""Lines of results on the standard output, and of errors on the standard error."""

from __future__ import annotations

import contextlib
import errno
import sys


class Mistake(ValueError):
    """A mistake in the arguments of a command."""


def out(text: str, end: str = "\n") -> None:
    """Write a result to the standard output."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "is closed", "the standard output")
    try:
        print(text, end=end, flush=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, "the standard output") from None
    except ValueError:
        raise OSError(errno.EBADF, "is closed", "the standard output") from None


def note(line: str) -> None:
    """Write a line that is no result to the standard error."""
    print(line, file=sys.stderr)


def error_lines(text: object, code: int) -> int:
    """Write each line of an error to the standard error, and return the exit code."""
    with contextlib.suppress(OSError, ValueError):
        for line in str(text).splitlines():
            print(f"sparrow: {line}", file=sys.stderr)
    return code
