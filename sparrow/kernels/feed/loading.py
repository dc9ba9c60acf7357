"""The compiled library of the feed in this process, called through ctypes: the interpreter's lock is free meanwhile."""

from __future__ import annotations

import ctypes
import functools
import pathlib
import threading
from typing import Final

from sparrow.kernels.native.compiler import CompileError, levels, library_name
from sparrow.kernels.warning import warn_once

FOLDER = pathlib.Path(__file__).parent / "src"
SOURCES = (
    "convert.cc",
    "fill.cc",
    "footer.cc",
    "number.cc",
    "order.cc",
    "pool.cc",
    "read.cc",
    "read_text.cc",
    "route.cc",
    "shorts.cc",
    "text_index.cc",
    "tile.cc",
    "unpack.cc",
)
SYMBOLS: Final = {  # and whether each returns a number
    "sparrow_pool_take": True,
    "sparrow_pool_give": False,
    "sparrow_pool_trim": True,
    "sparrow_feed_convert": True,
    "sparrow_feed_decode": True,
    "sparrow_feed_read": True,
    "sparrow_feed_footer": True,
    "sparrow_feed_check_pages": True,
    "sparrow_feed_parse": True,
    "sparrow_feed_read_text": True,
    "sparrow_feed_shuffled": True,
    "sparrow_feed_numbered": True,
    "sparrow_feed_take_rows": False,
    "sparrow_feed_take_tails": False,
    "sparrow_feed_bags": False,
    "sparrow_feed_fill": True,
    "sparrow_feed_fill_columns": True,
    "sparrow_feed_count": False,
    "sparrow_feed_route_pooled": False,
    "sparrow_feed_lay_out_pooled": False,
    "sparrow_feed_route_rows": True,
    "sparrow_feed_lay_out_rows": False,
}
_lock = threading.Lock()


def content() -> str:
    """All code, for hashing."""
    return "\n".join(path.read_text() for path in sorted(FOLDER.iterdir()) if path.suffix in (".cc", ".h"))


def job() -> tuple[str, str, tuple[str, ...]]:
    """Name of the library, the instruction set it is compiled for, and its sources."""
    level = levels()[0]
    return library_name("feed", level, content()), level, tuple(str(FOLDER / name) for name in SOURCES)


@functools.cache
def _load() -> ctypes.CDLL | str:
    from sparrow.kernels.native.library import open_library

    try:
        loaded = open_library(*job(), symbols=list(SYMBOLS))
    except (CompileError, OSError) as error:
        return f"the compiled feed could not be loaded: {error}"
    for symbol, returns in SYMBOLS.items():
        getattr(loaded, symbol).restype = ctypes.c_int64 if returns else None
    return loaded


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
    held.sparrow_pool_take.restype, held.sparrow_pool_take.argtypes = ctypes.c_int64, [ctypes.c_int64]
    held.sparrow_pool_give.restype, held.sparrow_pool_give.argtypes = None, [ctypes.c_int64] * 2
    return held


def unavailable() -> str | None:
    """Why the compiled feed cannot run here; None: it can."""
    loaded = load()
    return loaded if isinstance(loaded, str) else None
