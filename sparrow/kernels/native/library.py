"""The compiled libraries in this process: loaded once, the instruction set chosen by the processor."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import pathlib
import threading

import jax

from sparrow.kernels.native import compiler, sources
from sparrow.kernels.native.compiler import CompileError, find_or_compile, levels, library_name
from sparrow.kernels.native.translate import RowFunction

LOOKUP, UPDATE = "sparrow_lookup", "sparrow_update"
_lock = threading.Lock()


def ffi_content() -> str:
    """What the FFI layer is made of, XLA's own headers included: a library made with others is not used."""
    folder = pathlib.Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api"
    return sources.everything() + "".join(path.read_text() for path in sorted(folder.glob("*.h")))


def shipped_name(level: str) -> str:
    """The library that holds the shipped rules' row steps."""
    return f"rules-{level}.so"


@dataclasses.dataclass(frozen=True)
class Library:
    """The loaded libraries.

    Attributes:
      level: the instruction set in use.
      ffi: registers row steps.
      shipped: holds the shipped rules' row steps; None: there is none for this level.
    """

    level: str
    ffi: ctypes.CDLL
    shipped: ctypes.CDLL | None

    def register(self, function: RowFunction) -> None:
        """Makes ``function`` known to the update kernel, compiling it if it did not come with the package."""
        library = self.shipped
        if library is None or not hasattr(library, function.symbol):
            content = f'#include "row_step.h"\n{function.source}'
            name = library_name(function.symbol.replace("_", "-"), self.level, content)
            library = ctypes.CDLL(str(find_or_compile(name, self.level, content)))
        address = ctypes.cast(getattr(library, function.symbol), ctypes.c_void_p)
        self.ffi.sparrow_register_step(ctypes.c_int64(function.key), address, ctypes.c_int32(function.buffers))


@functools.cache
def _load() -> Library | str:
    """The libraries, or why there are none."""
    try:
        baseline = levels()[0]
        name = library_name("ffi", baseline, ffi_content())
        ffi = ctypes.CDLL(str(find_or_compile(name, baseline, sources.FFI, [jax.ffi.include_dir()])))
        level = _choose_level(ffi.sparrow_cpu_level())
        name = library_name("kernels", level, sources.everything())
        kernels = ctypes.CDLL(str(find_or_compile(name, level, sources.KERNELS)))
        kernels.sparrow_kernels.restype = ctypes.c_void_p
        ffi.sparrow_use_kernels(ctypes.c_void_p(kernels.sparrow_kernels()))
        shipped = compiler.PACKAGED / shipped_name(level)
        usable = shipped.exists() and not compiler.extra_flags()
        rules = ctypes.CDLL(str(shipped)) if usable else None
        for target in (LOOKUP, UPDATE):
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(ffi, target)), platform="cpu")  # type: ignore[no-untyped-call]
    except (CompileError, OSError, RuntimeError, AttributeError) as error:
        return f"the compiled kernels could not be loaded: {error}"
    return Library(level, ffi, rules)


def load() -> Library | str:
    """The loaded libraries, or the reason why they cannot be."""
    with _lock:
        return _load()


def _choose_level(cpu_level: int) -> str:
    """The best of `levels` that the processor runs.

    >>> _choose_level(3) in levels()
    True
    """
    return next((level for level in reversed(levels()) if level in ("generic", *_runs(cpu_level))), levels()[0])


def _runs(cpu_level: int) -> list[str]:
    return [f"x86-64-v{number}" for number in range(2, cpu_level + 1)]
