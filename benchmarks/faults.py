"""Make file operations fail, or kill the process, by a small library that is loaded before all others."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

NEVER = 2**62
KILL = 0


def run_with_faults() -> None:
    """Compile the library and start this program again with it, unless that was done."""
    if "faults" in os.environ.get("LD_PRELOAD", ""):
        return
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("a C compiler is needed to make file operations fail")
    library = Path(tempfile.mkdtemp()) / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    environment = os.environ | {"LD_PRELOAD": str(library)}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def arm(root: Path, at: int, code: int, *, sticky: bool = False) -> None:
    """Make the ``at``-th file operation below ``root`` fail with the errno ``code``, or kill the process there.

    ``sticky``: all operations after it fail too.
    """
    until = NEVER if sticky else at
    ctypes.CDLL(None).faults_arm(os.fsencode(root), ctypes.c_long(at), ctypes.c_long(until), code)


def disarm() -> int:
    """Let all operations pass, and return their number."""
    function = ctypes.CDLL(None).faults_disarm
    function.restype = ctypes.c_long
    count: int = function()
    return count


@contextlib.contextmanager
def failing(root: Path, at: int, code: int, *, sticky: bool = False) -> Iterator[None]:
    """Call `arm` for a block."""
    arm(root, at, code, sticky=sticky)
    try:
        yield
    finally:
        disarm()
