"""`Stages`: the time of each stage from files to the device."""

from __future__ import annotations

import threading
import time
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
    """The time of stages.

    Attributes:
      seconds: by stage, summed over threads.
      rows: the rows that went through all of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.rows = 0

    def timed(self, stage: str) -> Timed:
        return Timed(self, stage)

    def add(self, stage: str, seconds: float) -> None:
        with self._lock:
            self.seconds[stage] += seconds

    def passed(self, rows: int) -> None:
        with self._lock:
            self.rows += rows


class Timed:
    """A block whose time counts for a stage."""

    __slots__ = ("_began", "_stage", "_stages")

    def __init__(self, stages: Stages, stage: str) -> None:
        self._stages, self._stage = stages, stage

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self._stages.add(self._stage, time.perf_counter() - self._began)
