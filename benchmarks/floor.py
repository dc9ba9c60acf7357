"""The memory floor: how long a step's reads and writes take when nothing else is done.

A lookup reads each looked-up row once and writes each activation. A step does that, reads each activation gradient,
and reads and writes each touched row and each of its slots. Rows lie at random, so that their rate, in nanoseconds per
row of so many bytes, is measured on random rows of an array as large as the table; activations lie in order.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import pathlib
import statistics

import numpy as np

from sparrow.kernels.native import compiler

CACHE_LINE = 64
ROWS_PER_PROBE = 200_000


@functools.cache
def _library(level: str) -> ctypes.CDLL:
    source = pathlib.Path(__file__).with_name("floor.cc").read_text()
    name = compiler.library_name("floor", level, source)
    library = ctypes.CDLL(str(compiler.find_or_compile(name, level, source)))
    for function in (library.floor_gather, library.floor_modify, library.floor_stream):
        function.restype = ctypes.c_double
    return library


@dataclasses.dataclass
class Floor:
    """Measures rates on an array of ``num_rows`` rows of ``dim`` float32."""

    num_rows: int
    dim: int
    threads: int
    level: str

    def __post_init__(self) -> None:
        self.array = huge_pages(np.zeros(self.num_rows * self.dim, np.float32))
        self.sink = np.zeros(16, np.float32)
        self.rng = np.random.default_rng(1)
        self.samples: dict[str, list[float]] = {"gather": [], "modify": [], "line": [], "stream": []}

    def measure(self, warm_up: int = 1, samples: int = 3) -> None:
        """Some samples of each rate, after some that do not count; called between the contenders' blocks."""
        for i in range(warm_up + samples):
            self._measure_once(counts=i >= warm_up)

    def _measure_once(self, counts: bool) -> None:
        library, threads = _library(self.level), ctypes.c_int(self.threads)
        array, sink, count = _pointer(self.array), _pointer(self.sink), ctypes.c_int64(ROWS_PER_PROBE)
        ids = self.rng.integers(0, self.num_rows, ROWS_PER_PROBE, dtype=np.int32)
        width = ctypes.c_int64(self.dim)
        gather = library.floor_gather(array, width, _pointer(ids), count, threads, sink) / ROWS_PER_PROBE
        ids = np.sort(ids)  # the update goes through its rows in order
        modify = library.floor_modify(array, width, _pointer(ids), count, threads) / ROWS_PER_PROBE
        # One number per row lies in a line of its own: rows far apart, lines of a smaller array.
        line = library.floor_modify(array, ctypes.c_int64(1), _pointer(ids), count, threads) / ROWS_PER_PROBE
        stream = library.floor_stream(array, ctypes.c_int64(len(self.array)), threads, sink) / self.array.nbytes
        if counts:
            for name, seconds in (("gather", gather), ("modify", modify), ("line", line), ("stream", stream)):
                self.samples[name].append(seconds)

    def rate(self, name: str) -> float:
        """The median, in seconds per row (``stream``: per byte)."""
        return statistics.median(self.samples[name])

    def lookup(self, lookups: float, bags: int) -> float:
        """Seconds that a lookup must take."""
        return lookups * self.rate("gather") + bags * self.dim * 4 * self.rate("stream")

    def step(self, lookups: float, touched: float, bags: int, vectors: int, numbers: int) -> float:
        """Seconds that a step must take with so many slot vectors and slot numbers per row."""
        update = touched * ((1 + vectors) * self.rate("modify") + numbers * self.rate("line"))
        return self.lookup(lookups, bags) + bags * self.dim * 4 * self.rate("stream") + update


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def huge_pages(array: np.ndarray) -> np.ndarray:
    """The same array on 2 MB pages where the system gives them, as the kernels ask for their tables."""
    page = 2 << 20
    begin = -(-array.ctypes.data // page) * page
    end = (array.ctypes.data + array.nbytes) // page * page
    if end > begin:
        libc = ctypes.CDLL(None, use_errno=True)
        for advice in (14, 25):  # MADV_HUGEPAGE, MADV_COLLAPSE
            libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), ctypes.c_int(advice))
    return array
