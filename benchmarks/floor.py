"""The memory floor: the time of a step's reads and writes alone.

A lookup reads each looked-up row once and writes each activation. A step does that, reads each activation gradient,
and reads and writes each touched row and each of its slots. Rows lie at random, so that their rate, in nanoseconds per
row by its bytes, is measured on random rows of an array as large as the table; activations lie in order.

A workload that looks some rows up more often than others finds them in the cache, and can be faster than that. The
"own" floor therefore reads and writes the rows of the workload's own batches.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import pathlib
import statistics
from typing import Any

import numpy as np
from workloads import after_warm_up

from sparrow.kernels.native import compiler
from sparrow.kernels.native.library import open_library

CACHE_LINE = 64
ROWS_PER_PROBE = 200_000


@functools.cache
def _library(level: str) -> ctypes.CDLL:
    source = pathlib.Path(__file__).with_name("floor.cc").read_text()
    name = compiler.library_name("floor", level, source)
    library = open_library(name, level, source)
    for function in (library.floor_gather, library.floor_modify, library.floor_stream):
        function.restype = ctypes.c_double
    return library


@dataclasses.dataclass
class Floor:
    """Rates on a private array of ``num_rows`` rows of ``dim`` float32.

    Attributes:
      batches: the rows that each batch looks up, in its order.
    """

    num_rows: int
    dim: int
    threads: int
    level: str
    batches: list[np.ndarray]

    def __post_init__(self) -> None:
        self.array = _on_huge_pages(self.num_rows * self.dim)
        self.sink = np.zeros(16, np.float32)
        self.rng = np.random.default_rng(1)
        self.touched = [np.unique(ids) for ids in self.batches]
        self.samples: dict[str, list[float]] = {}

    def measure(self, block: list[int], warm_up: float) -> None:
        """Sample each rate again; called once a round, with the batches that the contenders ran."""
        self.samples.clear()
        for rates in (
            *after_warm_up(self._own_rates, block, warm_up),
            *after_warm_up(lambda _: self._random_rates(), block[:3], 0),
        ):
            for name, sample in rates.items():
                self.samples.setdefault(name, []).append(sample)

    def _own_rates(self, batch: int) -> dict[str, float]:
        return {
            "own gather": self._gather(self.batches[batch]),
            "own modify": self._modify(self.touched[batch], self.dim),  # as the lookup left them in the cache
            "own slots": self._modify(self.touched[batch - len(self.batches) // 2], self.dim),  # and as not
        }

    def _random_rates(self) -> dict[str, float]:
        random = self.rng.integers(0, self.num_rows, ROWS_PER_PROBE, dtype=np.int32)
        in_order = np.sort(random)  # the update goes through its rows in order
        bytes_read = self.array.nbytes
        return {
            "gather": self._gather(random) / len(random),
            "modify": self._modify(in_order, self.dim) / len(in_order),
            # One number per row lies in a line of its own: rows far apart, lines of a smaller array.
            "line": self._modify(in_order, 1) / len(in_order),
            "stream": self._call("floor_stream", ctypes.c_int64(self.array.size), self.threads, self.sink) / bytes_read,
        }

    def _gather(self, ids: np.ndarray) -> float:
        return self._call("floor_gather", ctypes.c_int64(self.dim), ids, _count(ids), self.threads, self.sink)

    def _modify(self, ids: np.ndarray, width: int) -> float:
        return self._call("floor_modify", ctypes.c_int64(width), ids, _count(ids), self.threads)

    def _call(self, name: str, *arguments: Any) -> float:
        pointers = [_pointer(a) if isinstance(a, np.ndarray) else a for a in (self.array, *arguments)]
        seconds: float = getattr(_library(self.level), name)(*pointers)
        return seconds

    def rate(self, name: str) -> float:
        """Return the median, in seconds per row (``stream``: per byte; ``own``: per batch)."""
        return statistics.median(self.samples[name])

    def lookup(self, lookups: float, bags: int, own: bool = False) -> float:
        """Return the seconds that a lookup must take; ``own``: with this workload's rows instead of random ones."""
        rows = self.rate("own gather") if own else lookups * self.rate("gather")
        return rows + bags * self.dim * 4 * self.rate("stream")

    def step(self, lookups: float, touched: float, bags: int, vectors: int, numbers: int, own: bool = False) -> float:
        """Return the seconds that a step must take, by the slot vectors and slot numbers per row."""
        random = touched * self.rate("modify")
        rows, slots = (self.rate("own modify"), self.rate("own slots")) if own else (random, random)
        update = rows + vectors * slots + numbers * touched * self.rate("line")
        return self.lookup(lookups, bags, own) + bags * self.dim * 4 * self.rate("stream") + update


def _count(ids: np.ndarray) -> ctypes.c_int64:
    return ctypes.c_int64(len(ids))


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _on_huge_pages(size: int) -> np.ndarray:
    """Return ``size`` numbers, all written once, on 2 MB pages where available, as the kernels request them."""
    array = np.empty(size, np.float32)
    page = 2 << 20
    begin = -(-array.ctypes.data // page) * page
    end = (array.ctypes.data + array.nbytes) // page * page
    if end > begin and hasattr(ctypes.CDLL(None), "madvise"):
        madvise = ctypes.CDLL(None).madvise
        madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), ctypes.c_int(14))  # MADV_HUGEPAGE
    array.fill(0.01)
    return array
