"""The compiled libraries in this process: loaded once, the instruction set chosen by the processor."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import pathlib
import tempfile
import threading
from collections.abc import Sequence

import jax

from sparrow.kernels import cache
from sparrow.kernels.native import compiler
from sparrow.kernels.native.compiler import CompileError, levels, library_name
from sparrow.kernels.native.translate import RowFunction
from sparrow.kernels.warning import warn_once

LOOKUP, UPDATE = "sparrow_lookup", "sparrow_update"
FIND_IDS, ASSIGN_IDS, INDEX_IDS = "sparrow_find_ids", "sparrow_assign_ids", "sparrow_index_ids"
ATTENTION, ATTENTION_BACKWARD = "sparrow_attention", "sparrow_attention_backward"
TARGETS = (LOOKUP, UPDATE, ATTENTION, ATTENTION_BACKWARD, FIND_IDS, ASSIGN_IDS, INDEX_IDS)
OTHERS = ("sparrow_cpu_level", "sparrow_use_kernels", "sparrow_register_step", "sparrow_move_to_huge_pages")
FFI_SYMBOLS = (*TARGETS, *OTHERS)
_lock = threading.Lock()


def ffi_headers() -> str:
    """Return the code of XLA's own headers: a library made with others is not used."""
    folder = pathlib.Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api"
    return "".join(path.read_text() for path in sorted(folder.glob("*.h")))


def ffi_content() -> str:
    """Return the FFI layer's code, for hashing."""
    return compiler.all_code() + ffi_headers()


def shipped_name(level: str) -> str:
    """Return the library that holds the shipped rules' row steps."""
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
        """Make ``function`` known to the update kernel, compiling it if it did not come with the package."""
        library = self.shipped
        if library is None or not hasattr(library, function.symbol):
            content = f'#include "row_step.h"\n{function.source}'
            name = library_name(function.symbol.replace("_", "-"), self.level, content)
            library = open_library(name, self.level, content, symbols=[function.symbol])
        address = ctypes.cast(getattr(library, function.symbol), ctypes.c_void_p)
        self.ffi.sparrow_register_step(ctypes.c_int64(function.key), address, ctypes.c_int32(function.buffers))


def open_library(
    name: str, level: str, files: Sequence[str] | str, includes: Sequence[str] = (), symbols: Sequence[str] = ()
) -> ctypes.CDLL:
    """Return the library ``name`` with ``symbols``: from the package, from the cache, or compiled now.

    One that cannot be loaded or lacks a symbol is compiled again. Raise `CompileError` where that does not help.

    Args:
      name: from `library_name`.
      level: one of `levels`.
      files: as for `compiler.compiled`.
      includes: folders of headers, besides the source folder.
      symbols: functions that the library must have.
    """
    failures = []
    for find in (compiler.packaged, cache.find):
        path = None
        try:
            if (path := find(name)) is not None:
                return _opened(path, symbols)
        except (CompileError, cache.CacheError) as error:
            failures.append(str(error))
            if path is not None and find is cache.find:
                cache.discard(path)
    try:
        data = compiler.compiled(level, files, includes)
    except CompileError as error:
        raise CompileError("; ".join([str(error), *failures])) from None
    try:
        return _opened(cache.keep(name, data), symbols)
    except (CompileError, cache.CacheError) as error:
        why = error
    try:
        with tempfile.TemporaryDirectory(prefix="sparrow-") as scratch:
            path = pathlib.Path(scratch) / name
            path.write_bytes(data)
            library = _opened(path, symbols)
    except OSError as error:
        raise CompileError(f"{why}; cannot write a temporary file: {error.strerror or error}") from None
    except CompileError:
        raise CompileError(str(why)) from None
    warn_once(f"compiled kernels are not kept, so that every process compiles them again: {why}")
    return library


def _opened(path: pathlib.Path, symbols: Sequence[str]) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise CompileError(
            f"{path} cannot be loaded: {error} (is {path.parent} mounted noexec? set {cache.VARIABLE})"
        ) from None
    if missing := [symbol for symbol in symbols if not hasattr(library, symbol)]:
        raise CompileError(f"{path} lacks {', '.join(missing)}")
    return library


@functools.cache
def _load() -> Library | str:
    """Return the libraries, or why there are none."""
    try:
        baseline = levels()[0]
        name = library_name("ffi", baseline, ffi_content())
        ffi = open_library(name, baseline, compiler.FFI, [jax.ffi.include_dir()], FFI_SYMBOLS)
        level = _choose_level(ffi.sparrow_cpu_level())
        name = library_name("kernels", level, compiler.all_code())
        kernels = open_library(name, level, compiler.KERNELS, symbols=["sparrow_kernels"])
        kernels.sparrow_kernels.restype = ctypes.c_void_p
        ffi.sparrow_use_kernels(ctypes.c_void_p(kernels.sparrow_kernels()))
        shipped = compiler.packaged(shipped_name(level)) if not compiler.extra_flags() else None
        rules = ctypes.CDLL(str(shipped)) if shipped is not None else None
        for target in TARGETS:
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(ffi, target)), platform="cpu")  # type: ignore[no-untyped-call]
    except (CompileError, OSError, RuntimeError, AttributeError) as error:
        return f"the compiled kernels could not be loaded: {error}"
    return Library(level, ffi, rules)


def load() -> Library | str:
    """Return the loaded libraries, or the reason why they cannot be."""
    with _lock:
        return _load()


def _choose_level(cpu_level: int) -> str:
    """Return the best of `levels` that the processor runs.

    >>> _choose_level(3) in levels()
    True
    """
    runs = ("generic", *(f"x86-64-v{number}" for number in range(2, cpu_level + 1)))
    return next((level for level in reversed(levels()) if level in runs), levels()[0])
