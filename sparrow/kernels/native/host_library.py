"""Compiled functions that NumPy arrays are given to, beside JAX: one library per source file and instruction set."""

from __future__ import annotations

import ctypes
import functools
import pathlib
from typing import Final

from sparrow.kernels.native.compiler import CompileError, levels, library_name
from sparrow.kernels.native.library import load, open_library
from sparrow.kernels.warning import warn_once

KERNELS: Final = pathlib.Path(__file__).parents[1]
SOURCES: Final = {
    "search": (KERNELS / "search" / "src" / "search.cc", "sparrow_search", "rows are searched"),
    "quantized": (KERNELS / "quantized" / "src" / "quantized.cc", "sparrow_dequantize", "tables of few bits are read"),
}
"""By library: its source, its function, and the work that NumPy does where there is no compiler."""


def jobs(kind: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return name, instruction set and source of a library, for every instruction set."""
    source = SOURCES[kind][0]
    return [(library_name(kind, level, source.read_text()), level, (str(source),)) for level in levels()]


@functools.cache
def host_library(kind: str) -> ctypes.CDLL | None:
    """Return a loaded library; None, with one warning: NumPy does its work."""
    _, symbol, work = SOURCES[kind]
    kernels = load()
    if isinstance(kernels, str):
        reason = kernels
    else:
        try:
            name, level, files = next(job for job in jobs(kind) if job[1] == kernels.level)
            loaded = open_library(name, level, files, symbols=[symbol])
            getattr(loaded, symbol).restype = None
            return loaded
        except (CompileError, OSError) as error:
            reason = f"the library '{kind}' could not be loaded: {error}"
    warn_once(f"{work} by slower NumPy code: {reason}")
    return None


def address(array: object) -> ctypes.c_void_p:
    """Return the address of an array's first value; None: null."""
    return ctypes.c_void_p(None if array is None else array.ctypes.data)  # type: ignore[attr-defined]
