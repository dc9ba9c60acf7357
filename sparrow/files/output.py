"""The standard output after its reader has gone."""

from __future__ import annotations

import contextlib
import os
import sys


def drop_output() -> None:
    """Drop lines that could not be written, and all that follow: Python would try to write them when it ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
