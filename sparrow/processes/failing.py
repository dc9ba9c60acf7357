"""Failures of one process, made known to the others: all end, with the cause."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import Final

import jax

from sparrow.processes import jax_private

ELSEWHERE: Final = 3
"""The exit code of a process that ended because another one failed."""
GRACE: Final = 8.0
"""Seconds that a process has to end by itself after another one failed."""

_KEY: Final = "sparrow/failed"


def report_failure(text: str) -> None:
    """Publish the reason why this process fails. The first report of all processes counts."""
    client = jax_private.client()
    if client is not None:
        lines = " ".join(text.split())
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # another process was first, or the store is gone
            client.key_value_set(_KEY, f"{jax_private.index()} {lines}")


def cause(seconds: float = 2.0) -> str | None:
    """Return the reported failure of another process, such as "process 1: the disk is full"; None where there is none.

    The report may come a moment after the connection has broken: wait for it up to ``seconds``.
    """
    client = jax_private.client()
    if client is None:
        return None
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        number, _, text = str(client.blocking_key_value_get(_KEY, int(1000 * seconds))).partition(" ")
        if int(number) != jax_private.index():
            return f"process {number}: {text}"
    return None


def watch() -> None:
    """Start a thread that ends this process where another one has failed and this one does not end by itself."""
    threading.Thread(target=_watch, name="sparrow-watch", daemon=True).start()


def _watch() -> None:
    while (client := jax_private.client()) is not None:
        try:
            text = str(client.blocking_key_value_get(_KEY, 3_600_000))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                return  # the store is gone: JAX itself ends this process
            continue
        number, _, reason = text.partition(" ")
        if int(number) == jax_private.index():
            return
        time.sleep(GRACE)
        with contextlib.suppress(OSError, ValueError):
            print(f"sparrow: process {number}: {reason}", file=sys.stderr, flush=True)
        os._exit(ELSEWHERE)
