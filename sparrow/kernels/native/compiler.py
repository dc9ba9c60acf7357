"""The C++ files, and calling the compiler. A library's name holds the hash of all that went into it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence

from sparrow.files import replace_file

FOLDER = pathlib.Path(__file__).parent / "src"
KERNELS = ("kernels.cc", "attention.cc", "lookup.cc", "update.cc")
FFI = ("ffi.cc", "ffi_attention.cc", "ffi_ids.cc", "ids.cc")
"""The files of the library of kernels, and of the one that XLA calls."""

PACKAGED = pathlib.Path(__file__).parent / "lib"
"""The libraries that came with the package."""

CHECKSUMS = "checksums.json"
"""The SHA-256 of each of them, by file name; where there is none, they are not compared."""

FLAGS_VARIABLE = "SPARROW_CXXFLAGS"
"""More flags, such as ``-fsanitize=address``: all libraries are then compiled with them, into the cache."""

FLAGS = (
    *("-std=c++17", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-fwrapv", "-fno-strict-aliasing"),
    # The exact meaning of every operation is kept, NaN and infinity included; nothing reads errno or the flags of
    # the floating-point unit, and a*b+c may be rounded once.
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fopenmp-simd"),
)


def code(*names: str) -> str:
    """Return the content of files, for hashing."""
    return "\n".join((FOLDER / name).read_text() for name in names)


def all_code() -> str:
    """Return the content of all files, for hashing."""
    return code(*sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".cc", ".h")))


class CompileError(RuntimeError):
    """The compiler is missing or failed; the message gives the reason."""


def levels() -> tuple[str, ...]:
    """Return the instruction sets that libraries are built for on this kind of processor, least first.

    >>> all(isinstance(level, str) for level in levels())
    True
    """
    if platform.machine().lower() in ("x86_64", "amd64"):
        return ("x86-64-v2", "x86-64-v3", "x86-64-v4")
    return ("generic",)


def extra_flags() -> tuple[str, ...]:
    """Return the user's own flags."""
    return tuple(shlex.split(os.environ.get(FLAGS_VARIABLE, "")))


def flags(level: str) -> tuple[str, ...]:
    """Return the compiler's flags for ``level``."""
    if level == "generic":
        return (*FLAGS, *extra_flags())
    wide = ("-mprefer-vector-width=512",) if level == "x86-64-v4" else ()
    return (*FLAGS, f"-march={level}", *wide, *extra_flags())


@functools.cache
def find_compiler() -> str | None:
    """``$CXX``, or the first of c++, g++, clang++ that is installed."""
    candidates = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    return next((path for name in candidates if (path := shutil.which(name))), None)


def library_name(kind: str, level: str, content: str) -> str:
    """Return the file name of a library: its kind, its instruction set, and the hash of its code and flags."""
    digest = hashlib.sha256("\n".join([content, *flags(level)]).encode()).hexdigest()[:16]
    return f"{kind}-{level}-{digest}.so"


def packaged(name: str) -> pathlib.Path | None:
    """Return the library ``name`` of the package; None: there is none, or its bytes differ from the packaged ones.

    A library that was cut off cannot be left to the system's loader: it would end the process.
    """
    path = PACKAGED / name
    try:
        data = path.read_bytes()
        sums = json.loads((PACKAGED / CHECKSUMS).read_bytes())
    except FileNotFoundError:
        return path if path.exists() else None
    except (OSError, ValueError):
        return None
    if not isinstance(sums, dict):
        return None
    return path if sums.get(name) == hashlib.sha256(data).hexdigest() else None


def compile_library(
    path: pathlib.Path, level: str, files: Sequence[str] | str, includes: Sequence[str] = ()
) -> pathlib.Path:
    """Compile the shared library ``path``; it appears complete or not at all. Raise `CompileError` where that fails."""
    data = compiled(level, files, includes)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
    except OSError as error:
        raise CompileError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def compiled(level: str, files: Sequence[str] | str, includes: Sequence[str] = ()) -> bytes:
    """Return the content of a shared library. Raise `CompileError` where it cannot be compiled.

    Args:
      level: one of `levels`.
      files: names of files in the source folder, or the text of one generated file.
      includes: folders of headers, besides the source folder.
    """
    compiler = find_compiler()
    if compiler is None:
        raise CompileError("no C++ compiler was found; install g++ or clang++, or set CXX")
    try:
        with tempfile.TemporaryDirectory(prefix="sparrow-") as scratch:
            if isinstance(files, str):
                generated = pathlib.Path(scratch) / "generated.cc"
                generated.write_text(files)
                inputs = [str(generated)]
            else:
                inputs = [str(FOLDER / name) for name in files]
            made = pathlib.Path(scratch) / "library.so"
            headers = [f"-I{FOLDER}", *(part for folder in includes for part in ("-isystem", folder))]
            command = [compiler, *flags(level), *headers, *inputs, "-o", str(made)]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode != 0:
                raise CompileError(f"{compiler} failed: {first_error(done.stderr)}")
            return made.read_bytes()
    except OSError as error:
        raise CompileError(f"cannot run {compiler}: {error}; set TMPDIR to a folder with space, or CXX") from error


def first_error(output: str) -> str:
    """Return the first line of a compiler's output that has an error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")
