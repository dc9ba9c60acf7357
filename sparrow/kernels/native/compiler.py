"""Calling the C++ compiler, and keeping what it made: libraries are found by the hash of all that went into them."""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence

from sparrow.kernels.native import sources

PACKAGED = pathlib.Path(__file__).parent / "lib"
"""The libraries that came with the package."""

CACHE_VARIABLE = "SPARROW_CACHE_DIR"
FLAGS_VARIABLE = "SPARROW_CXXFLAGS"
"""More flags, such as ``-fsanitize=address``: all libraries are then compiled with them, into the cache."""

FLAGS = (
    *("-std=c++17", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-fwrapv", "-fno-strict-aliasing"),
    # The exact meaning of every operation is kept, NaN and infinity included; nobody reads errno or the flags of
    # the floating-point unit, and a*b+c may be rounded once.
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fopenmp-simd"),
)


class CompileError(RuntimeError):
    """The compiler is missing or failed; the message says which."""


def levels() -> tuple[str, ...]:
    """The instruction sets that libraries are built for on this kind of processor, least first.

    >>> all(isinstance(level, str) for level in levels())
    True
    """
    if platform.machine().lower() in ("x86_64", "amd64"):
        return ("x86-64-v2", "x86-64-v3", "x86-64-v4")
    return ("generic",)


def extra_flags() -> tuple[str, ...]:
    """The user's own flags."""
    return tuple(shlex.split(os.environ.get(FLAGS_VARIABLE, "")))


def flags(level: str) -> tuple[str, ...]:
    """The compiler's flags for ``level``."""
    if level == "generic":
        return (*FLAGS, *extra_flags())
    wide = ("-mprefer-vector-width=512",) if level == "x86-64-v4" else ()
    return (*FLAGS, f"-march={level}", *wide, *extra_flags())


def cache_folder() -> pathlib.Path:
    """Where libraries compiled on first use are kept: ``$SPARROW_CACHE_DIR``, or the user's cache folder."""
    if given := os.environ.get(CACHE_VARIABLE):
        return pathlib.Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "sparrow"


@functools.cache
def find_compiler() -> str | None:
    """``$CXX``, or the first of c++, g++, clang++ that is installed."""
    candidates = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    return next((path for name in candidates if (path := shutil.which(name))), None)


def library_name(kind: str, level: str, content: str) -> str:
    """The file name of a library: what it is, for which instructions, and the hash of its code and flags."""
    digest = hashlib.sha256("\n".join([content, *flags(level)]).encode()).hexdigest()[:16]
    return f"{kind}-{level}-{digest}.so"


def find_or_compile(name: str, level: str, files: Sequence[str] | str, includes: Sequence[str] = ()) -> pathlib.Path:
    """The library ``name``: from the package, from the cache, or compiled into the cache now.

    Args:
      name: from `library_name`.
      level: one of `levels`.
      files: names of files in the source folder, or the text of one generated file.
      includes: folders of headers, beside the source folder.
    """
    for folder in (PACKAGED, cache_folder()):
        if (folder / name).exists():
            return folder / name
    return compile_library(cache_folder() / name, level, files, includes)


def compile_library(
    path: pathlib.Path, level: str, files: Sequence[str] | str, includes: Sequence[str] = ()
) -> pathlib.Path:
    """Compiles the shared library ``path``; it appears whole or not at all. Raises `CompileError`."""
    compiler = find_compiler()
    if compiler is None:
        raise CompileError("no C++ compiler was found; install g++ or clang++, or set CXX")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            if isinstance(files, str):
                generated = pathlib.Path(scratch) / "generated.cc"
                generated.write_text(files)
                inputs = [str(generated)]
            else:
                inputs = [str(sources.FOLDER / name) for name in files]
            made = pathlib.Path(scratch) / "library.so"
            headers = [f"-I{sources.FOLDER}", *(part for folder in includes for part in ("-isystem", folder))]
            command = [compiler, *flags(level), *headers, *inputs, "-o", str(made)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise CompileError(f"{compiler} failed: {_first_error(done.stderr)}")
            made.replace(path)
    except OSError as error:
        raise CompileError(f"cannot write {path}: {error.strerror or error}; set {CACHE_VARIABLE}") from error
    return path


def _first_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")
