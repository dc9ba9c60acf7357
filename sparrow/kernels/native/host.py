"""Compiled libraries that NumPy arrays are given to, called through ctypes, without the interpreter's lock."""

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

KERNELS: Final = pathlib.Path(__file__).parents[1]
SIGNATURES: Final[Mapping[str, Mapping[str, str]]] = {
    "feed": {
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
    },
    "search": {"sparrow_search": "- pnpnnnnpppnpp"},
    "quantized": {"sparrow_fill_rows": "- pnpnpn"},
    "areas": {"sparrow_group_areas": "n pnnnnppp", "sparrow_binary_rows": "n ppppnppppp"},
}
"""By library and function, its result and its arguments: n a number, u an unsigned one, t text, p memory, - nothing."""
WORK: Final = {
    "feed": "batches are prepared",
    "search": "rows are searched",
    "quantized": "rows of exports are read",
    "areas": "grouped AUC is computed",
}
"""By library, its work, which slower code does where there is no compiler."""


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


def jobs(kind: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return name, instruction set and sources of a library, for each instruction set that it is compiled for."""
    files = sorted((KERNELS / kind / "src").glob("*.[ch]*"))
    content = "\n".join(path.read_text() for path in files)
    sources = tuple(str(path) for path in files if path.suffix == ".cc")
    one = kind in ("feed", "areas")  # the feed chooses instructions function by function; sorting has no use for them
    used = levels()[:1] if one else levels()
    return [(library_name(kind, level, content), level, sources) for level in used]


@functools.cache
def _load(kind: str) -> ctypes.CDLL | str:
    from sparrow.kernels.native import library

    every = jobs(kind)
    kernels = library.load() if len(every) > 1 else None
    if isinstance(kernels, str):
        return kernels
    try:
        job = next((job for job in every if kernels is not None and job[1] == kernels.level), every[0])
        loaded = library.open_library(*job, symbols=list(SIGNATURES[kind]))
    except (CompileError, OSError) as error:
        return f"the library '{kind}' could not be loaded: {error}"
    declare(loaded, kind, SIGNATURES[kind])
    return loaded


def declare(loaded: ctypes.CDLL, kind: str, symbols: Iterable[str]) -> None:
    """Give functions of a library the types of their results and arguments."""
    for symbol in symbols:
        result, arguments = SIGNATURES[kind][symbol].split()
        function = getattr(loaded, symbol)
        function.restype, function.argtypes = TYPES[result], [TYPES[letter] for letter in arguments]


def load(kind: str) -> ctypes.CDLL | str:
    """Return a loaded library, or the reason why there is none."""
    with _lock:
        return _load(kind)


def host_library(kind: str) -> ctypes.CDLL | None:
    """Return a loaded library; None, with one warning: slower code does its work, with the same results."""
    loaded = load(kind)
    if isinstance(loaded, str):
        warn_once(f"{WORK[kind]} by slower code: {loaded}")
        return None
    return loaded
