"""The compiled library of the feed in this process."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from sparrow.kernels.native.host import FIELDS, declare, host_library, load


def struct_fields(text: str) -> list[tuple[str, Any]]:
    """Return the fields of a struct: each letter of `FIELDS` is the type of the names behind it.

    >>> [name for name, kind in struct_fields("n rows width p words") if kind is ctypes.c_int64]
    ['rows', 'width']
    """
    made, kind = [], None
    for word in text.split():
        if word in FIELDS:
            kind = FIELDS[word]
        else:
            made.append((word, kind))
    return made


library = functools.partial(host_library, "feed")
"""Return the loaded library; None, with one warning: NumPy does its work, with the same results."""


def compiled() -> ctypes.CDLL:
    """Return the library, for work that is planned only where there is one."""
    loaded = library()
    assert loaded is not None
    return loaded


def short_calls() -> ctypes.PyDLL | None:
    """Return the library for calls of a microsecond: they keep the interpreter's lock (ctypes' `PyDLL`).

    Where many threads want the lock, a thread that lets it go waits longer for it than such a call takes: 150 us with
    14 threads, for a call of one. Only the pool's take and give are called so, which never wait nor call Python. With
    `CDLL` instead, all results are the same, and each of these calls is such a wait.
    """
    loaded = library()
    return None if loaded is None else _keeping_the_lock(loaded)


@functools.cache
def _keeping_the_lock(loaded: ctypes.CDLL) -> ctypes.PyDLL:
    held = ctypes.PyDLL(loaded._name, handle=loaded._handle)
    declare(held, "feed", ("sparrow_pool_take", "sparrow_pool_give"))
    return held


def unavailable() -> str | None:
    """Why the compiled feed cannot run here; None: it can."""
    loaded = load("feed")
    return loaded if isinstance(loaded, str) else None
