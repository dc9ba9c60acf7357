"""Short messages between processes, and failures of one, made known to the others: all end, with the cause.

With one process, every function here returns at once.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import jax

from sparrow.processes.jax_private import client, count, index

T = TypeVar("T")

PATIENCE: Final = 1000
"""Milliseconds of one attempt to read a message; between attempts, signals are handled."""

_numbers = itertools.count()  # all processes exchange the same messages in the same order


def is_first() -> bool:
    """Return whether this process writes logs and reports."""
    return index() == 0


def publish(key: str, text: str) -> None:
    """Publish a message."""
    client().key_value_set(key, text)


def found(key: str) -> str | None:
    """Return a message; None: it is not there."""
    try:
        return str(client().key_value_try_get(key))
    except jax.errors.JaxRuntimeError as error:
        if "NOT_FOUND" not in str(error):
            raise
        return None


def withdraw(key: str) -> None:
    """Remove a message."""
    client().key_value_delete(key)


def awaited(key: str, is_over: Callable[[], bool] = lambda: False) -> str:
    """Wait for a message and return it; raise `InterruptedError` once ``is_over`` returns True."""
    while not is_over():
        try:
            return str(client().blocking_key_value_get(key, PATIENCE))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
    raise InterruptedError(f"the wait for {key} was cancelled")


def led(work: Callable[[], T], rebuild: Callable[[str], Exception] = RuntimeError) -> T | None:
    """Call ``work`` in the first process alone; the others wait for it, and raise ``rebuild(text)`` where it raises.

    All processes call this together. It returns the result in the first process, None in the others.
    """
    if count() == 1:
        return work()
    key = f"sparrow/led/{next(_numbers)}"
    if not is_first():
        if text := awaited(key):
            raise rebuild(text)
        return None
    try:
        made = work()
    except Exception as error:
        publish(key, str(error) or type(error).__name__)
        raise
    publish(key, "")
    return made


def said_by_all(value: Any) -> list[Any]:
    """Return the values of all processes, by their numbers; plain values for JSON. All processes call this together."""
    return everyone(f"all/{next(_numbers)}", value)


def everyone(name: str, value: Any) -> list[Any]:
    """As `said_by_all`, under a name that is used once: any thread may call it."""
    if count() == 1:
        return [value]
    publish(f"sparrow/{name}/{index()}", json.dumps(value))
    return [json.loads(awaited(f"sparrow/{name}/{number}")) for number in range(count())]


def of_first(name: str, value: Any) -> Any:
    """Return the value of the first process in all of them, under a name that is used once: any thread may call it."""
    key = f"sparrow/{name}"
    if not is_first():
        return json.loads(awaited(key))
    if count() > 1:
        publish(key, json.dumps(value))
    return value


ELSEWHERE: Final = 3
"""The exit code of a process that ended because another one failed."""
GRACE: Final = 8.0
"""Seconds that a process has to end by itself after another one failed."""

_KEY: Final = "sparrow/failed"


def report_failure(text: str) -> None:
    """Publish the reason why this process fails. The first report of all processes counts."""
    store = client()
    if store is not None:
        lines = " ".join(text.split())
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # another process was first, or the store is gone
            store.key_value_set(_KEY, f"{index()} {lines}")


def cause() -> str | None:
    """Return the reported failure of another process, such as "process 1: the disk is full"; None where there is none.

    The report may come a moment after the connection has broken: wait up to 2 seconds for it.
    """
    store = client()
    if store is None:
        return None
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        number, _, text = str(store.blocking_key_value_get(_KEY, 2000)).partition(" ")
        if int(number) != index():
            return f"process {number}: {text}"
    return None


_watching: list[threading.Thread] = []
_is_left = threading.Event()


def watch() -> None:
    """Start a thread that ends this process where another one has failed and this one does not end by itself."""
    _is_left.clear()
    _watching.append(threading.Thread(target=_watch, name="sparrow-watch", daemon=True))
    _watching[-1].start()


def end_watch() -> None:
    """Wait for the thread of `watch`, once the store is gone.

    An interpreter that ends while a thread returns from JAX's client ends the thread inside C++, which aborts.
    """
    _is_left.set()
    while _watching:
        _watching.pop().join()


def _watch() -> None:
    while (store := client()) is not None:
        try:
            text = str(store.blocking_key_value_get(_KEY, 3_600_000))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                return  # the store is gone: JAX itself ends this process
            continue
        number, _, reason = text.partition(" ")
        if int(number) == index():
            return
        if _is_left.wait(GRACE):
            return
        with contextlib.suppress(OSError, ValueError):
            print(f"sparrow: process {number}: {reason}", file=sys.stderr, flush=True)
        os._exit(ELSEWHERE)
