"""`Workers`: threads that do the parts of one task."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """Return the cores that this process may use, less one for the loop; at least one."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(usable - 1, 1)


class Workers:
    """A few threads, started when they are first needed; with one core, the caller does all parts."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = cores() if threads is None else threads
        self._pool = concurrent.futures.ThreadPoolExecutor(self.threads, thread_name_prefix="sparrow-host")

    def each(self, function: Callable[[T], R], parts: Iterable[T]) -> list[R]:
        """Return the results in order; the first error is raised when all parts have ended."""
        parts = list(parts)
        if self.threads == 1 or len(parts) < 2:
            return [function(part) for part in parts]
        futures = [self._pool.submit(function, part) for part in parts[1:]]
        try:
            first = function(parts[0])
        finally:
            concurrent.futures.wait(futures)
        return [first, *(future.result() for future in futures)]

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False)
