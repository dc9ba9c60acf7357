"""One MLIR context for many programs of a thread, instead of one for each.

JAX loads more than twenty dialects into a new context for every program that it compiles: 6 of the 22 ms of processor
time that a program of one operation takes here. The contexts are equal, so that programs do not differ; a context keeps
the constants of its programs, therefore the next one is made after PROGRAMS. It relies on a private function of JAX:
where that is missing, or where ``SPARROW_TEST_CONTEXTS`` is ``apart``, nothing changes.
"""

import os
import threading
from typing import Any

from jax._src.interpreters import mlir

PROGRAMS = 50


def share() -> None:
    """Let the programs of this process share contexts from now on."""
    make = getattr(mlir, "make_ir_context", None)
    if make is None or os.environ.get("SPARROW_TEST_CONTEXTS") == "apart":
        return
    held = threading.local()

    def shared() -> Any:
        if getattr(held, "left", 0) == 0:
            held.context, held.left = make(), PROGRAMS
        held.left -= 1
        return held.context

    mlir.make_ir_context = shared
