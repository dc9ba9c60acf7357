"""The compiled library of the feed in this process, called through ctypes: the interpreter's lock is free meanwhile."""

from __future__ import annotations

import ctypes
import functools
import pathlib
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.kernels.native.compiler import CompileError, levels, library_name
from sparrow.kernels.warning import warn_once

FOLDER = pathlib.Path(__file__).parent / "src"
SIGNATURES: Final = {
    "sparrow_pool_take": "n n",
    "sparrow_pool_give": "- nn",
    "sparrow_pool_trim": "n n",
    "sparrow_feed_convert": "n pnppp",
    "sparrow_feed_decode": "n pnpnp",
    "sparrow_feed_read": "n tpnp",
    "sparrow_feed_footer": "t tnnp",
    "sparrow_feed_check_pages": "t ppnpp",
    "sparrow_feed_parse": "n pnpp",
    "sparrow_feed_read_text": "n nnnnpp",
    "sparrow_feed_shuffled": "n nup",
    "sparrow_feed_numbered": "n pnp",
    "sparrow_feed_take_tails": "- pppnp",
    "sparrow_feed_bags": "- pnppnpnpp",
    "sparrow_feed_fill": "n ppnp",
    "sparrow_feed_fill_columns": "n pnpp",
    "sparrow_feed_count": "- ppnp",
    "sparrow_feed_route_pooled": "- ppnnnpnpppp",
    "sparrow_feed_lay_out_pooled": "- pppnpnnpnnnnnnnpppppp",
    "sparrow_feed_route_rows": "n pnnnpnppp",
    "sparrow_feed_lay_out_rows": "- pppnppnnpnnnnnnppppppp",
}
"""By function, its result and its arguments: n a number, u an unsigned one, t text, p memory, - nothing."""


class Memory(ctypes.c_void_p):
    """An argument that is memory: an array, an address, anything of ctypes, or None."""

    @classmethod
    def from_param(cls, given: Any) -> Any:
        if isinstance(given, np.ndarray):
            return ctypes.c_void_p(address(given))
        return ctypes.c_void_p(given) if isinstance(given, int) else given


FIELDS: Final[Mapping[str, Any]] = {
    "n": ctypes.c_int64,
    "u": ctypes.c_uint64,
    "d": ctypes.c_double,
    "t": ctypes.c_char_p,
    "p": ctypes.c_void_p,
}
TYPES: Final[Mapping[str, Any]] = {**FIELDS, "p": Memory, "-": None}
_lock = threading.Lock()


def address(array: npt.NDArray[Any] | None) -> int:
    """Return the address of an array's first value; 0 of None. The caller keeps the array alive."""
    return 0 if array is None else int(array.__array_interface__["data"][0])


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


def job() -> tuple[str, str, tuple[str, ...]]:
    """Name of the library, the instruction set it is compiled for, and its sources."""
    level, files = levels()[0], sorted(FOLDER.glob("*.[ch]*"))
    name = library_name("feed", level, "\n".join(path.read_text() for path in files))
    return name, level, tuple(str(path) for path in files if path.suffix == ".cc")


@functools.cache
def _load() -> ctypes.CDLL | str:
    from sparrow.kernels.native.library import open_library

    try:
        loaded = open_library(*job(), symbols=list(SIGNATURES))
    except (CompileError, OSError) as error:
        return f"the compiled feed could not be loaded: {error}"
    _declare(loaded, SIGNATURES)
    return loaded


def _declare(loaded: ctypes.CDLL, symbols: Iterable[str]) -> None:
    for symbol in symbols:
        result, arguments = SIGNATURES[symbol].split()
        function = getattr(loaded, symbol)
        function.restype, function.argtypes = TYPES[result], [TYPES[letter] for letter in arguments]


def load() -> ctypes.CDLL | str:
    """Return the loaded library, or the reason why there is none."""
    with _lock:
        return _load()


def library() -> ctypes.CDLL | None:
    """Return the loaded library; None, with one warning: NumPy does its work, with the same results."""
    loaded = load()
    if isinstance(loaded, str):
        warn_once(f"batches are prepared by slower NumPy code: {loaded}")
        return None
    return loaded


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
    _declare(held, ("sparrow_pool_take", "sparrow_pool_give"))
    return held


def unavailable() -> str | None:
    """Why the compiled feed cannot run here; None: it can."""
    loaded = load()
    return loaded if isinstance(loaded, str) else None
