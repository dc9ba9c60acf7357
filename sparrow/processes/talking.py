"""Short messages between processes. With one process, every function here returns at once."""

from __future__ import annotations

import itertools
import json
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
    return everyone(f"all/{next(_numbers)}", value) if count() > 1 else [value]


def everyone(name: str, value: Any) -> list[Any]:
    """As `said_by_all`, under a name that is used once: any thread may call it."""
    publish(f"sparrow/{name}/{index()}", json.dumps(value))
    return [json.loads(awaited(f"sparrow/{name}/{number}")) for number in range(count())]
