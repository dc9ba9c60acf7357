"""The C++ files of this folder, and which library each belongs to."""

from __future__ import annotations

import pathlib

FOLDER = pathlib.Path(__file__).parent / "src"
KERNELS = ("kernels.cc", "attention.cc", "lookup.cc", "sort.cc", "update.cc")
FFI = ("ffi.cc", "ffi_attention.cc", "ffi_ids.cc", "ids.cc", "ids_assign.cc")
ROW_STEP_HEADERS = ("row_step.h", "half.h")
"""The files that a generated row step is compiled with."""


def text(*names: str) -> str:
    """Return the files' content, for hashing."""
    return "\n".join((FOLDER / name).read_text() for name in names)


def everything() -> str:
    """Return the content of all files, for hashing."""
    return text(*sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".cc", ".h")))
