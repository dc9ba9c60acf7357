"""The pages of memory of a run: freed memory is kept, and on a CPU large tables get large pages early."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Sequence
from typing import Any, Final

import jax

from sparrow.kernels import native
from sparrow.runs.loop.loop import Loop, Part
from sparrow.runs.loop.staging import Taken

TRIM_THRESHOLD: Final = -1
TOP_PAD: Final = -2
MMAP_THRESHOLD: Final = -3
HEAP: Final = 64 << 20
"""Bytes of the heaps of threads: with as much padding, glibc keeps a heap in which all is free."""
KEPT: Final = 1 << 30
"""Bytes of one allocation up to which glibc keeps the memory."""
LARGE_TABLE: Final = 32 << 20
SETTINGS: Final = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
"""Variables by which a user decides instead."""


class Moving(Part):
    """The move of large tables to large pages beside the first step, which later steps would wait for."""

    def __init__(self, thread: threading.Thread | None) -> None:
        self._thread = thread

    def take(self, loop: Loop, call: Sequence[Taken]) -> None:
        """Wait for it before the second step."""
        if self._thread is not None and loop.steps > loop.began_at:
            with loop.clock.paused("start"):
                self._thread.join()
            self._thread = None


@functools.cache
def keep_freed_memory() -> bool:
    """Let glibc keep the memory that is freed; return whether it does.

    A step allocates and frees its activations. By default the system takes their pages back each time, and a step pays
    for them again: about a third of the time of a small model; beside a GPU, columns of text are freed so. Left alone
    where there is no glibc, or a setting. Only a run calls this, never a user's own loop.
    """
    try:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    except OSError:
        return False
    if mallopt is None or any(name in os.environ for name in SETTINGS):
        return False
    kept = mallopt(MMAP_THRESHOLD, KEPT) or mallopt(MMAP_THRESHOLD, 32 << 20)  # the most that older versions take
    return bool(kept and mallopt(TRIM_THRESHOLD, 2**31 - 1) and mallopt(TOP_PAD, HEAP))


def move_to_large_pages(arrays: Any) -> threading.Thread | None:
    """Move the large arrays of a tree to large pages, in a thread: before the first steps, which would wait for it.

    Random rows of a large table are then gathered 16 to 31 % faster (benchmarks/NOTES.md). Where Linux has no
    MADV_COLLAPSE, or no large page is free, tables stay on small pages. Without this thread the kernels ask for the
    same in their first calls, as they do in a user's own loop (kernels/native/src/pages.h), which take longer then.
    """
    if native.unavailable() is not None:
        return None
    spans = [
        (array.unsafe_buffer_pointer(), array.nbytes)
        for array in jax.tree.leaves(arrays)
        if isinstance(array, jax.Array) and array.nbytes >= LARGE_TABLE and len(array.devices()) == 1
    ]
    if not spans:
        return None

    def move() -> None:
        for span in spans:
            native.move_to_large_pages(*span)

    thread = threading.Thread(target=move, name="sparrow-pages", daemon=True)
    thread.start()
    return thread
