"""`Stages`: the time of each stage from files to the device."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Final

READ, DECODE, CONVERT, PACK, COPY = STAGES = ("read", "decode", "convert", "pack", "copy")
MEANING: Final = {
    READ: "bytes from the disk",
    DECODE: "bytes to columns",
    CONVERT: "columns to ids and numbers, shuffled",
    PACK: "ids to lookups",
    COPY: "to the device",
}


class Stages:
    """The seconds of each stage, summed over threads, and the rows that went through all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.rows = 0

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - began)

    def add(self, stage: str, seconds: float) -> None:
        with self._lock:
            self.seconds[stage] += seconds

    def passed(self, rows: int) -> None:
        with self._lock:
            self.rows += rows
