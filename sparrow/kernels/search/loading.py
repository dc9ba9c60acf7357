"""The compiled search in this process."""

from __future__ import annotations

import ctypes
import functools
import pathlib
from typing import Final

from sparrow.kernels.native.compiler import CompileError, levels, library_name
from sparrow.kernels.native.library import load, open_library
from sparrow.kernels.warning import warn_once

SOURCE: Final = pathlib.Path(__file__).parent / "src" / "search.cc"
SYMBOL: Final = "sparrow_search"


def jobs() -> list[tuple[str, str, tuple[str, ...]]]:
    """Return name, instruction set and source of the library, for every instruction set."""
    content = SOURCE.read_text()
    return [(library_name("search", level, content), level, (str(SOURCE),)) for level in levels()]


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the loaded library; None, with one warning: NumPy searches, with the same results but for rounding."""
    kernels = load()
    reason = kernels if isinstance(kernels, str) else None
    if not isinstance(kernels, str):
        try:
            name, level, files = next(job for job in jobs() if job[1] == kernels.level)
            loaded = open_library(name, level, files, symbols=[SYMBOL])
            loaded.sparrow_search.restype = None
            return loaded
        except (CompileError, OSError) as error:
            reason = f"the compiled search could not be loaded: {error}"
    warn_once(f"rows are searched by slower NumPy code: {reason}")
    return None
