"""The lookups that the CPU benchmarks run: the same numbers for every library. Needs only NumPy."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")

NUM_BATCHES = 32  # in rotation, so that no batch finds its rows in the cache
BLOCK_SECONDS = 0.1  # the length of a block of runs: a faster contender runs more often, for the same time


@dataclasses.dataclass(frozen=True)
class Workload:
    """A set of equal tables and how ids are drawn.

    Attributes:
      name: the name in the results.
      tables, rows, dim: the number of tables, and their shape (rows, dim).
      batch: examples, each with one bag per table.
      bag: the least and the most ids in a bag.
      zipf: the exponent, over a random order of the rows; None: uniform.
    """

    name: str
    tables: int
    rows: int
    dim: int
    batch: int
    bag: tuple[int, int]
    zipf: float | None

    @property
    def ids(self) -> str:
        """How ids are drawn, in words."""
        low, high = self.bag
        return f"{low if low == high else f'{low} to {high}'} per bag, " + (
            f"Zipf {self.zipf}" if self.zipf else "uniform"
        )


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("W1", tables=26, rows=100_000, dim=64, batch=2048, bag=(1, 1), zipf=1.05),
        Workload("W2", tables=4, rows=1_000_000, dim=128, batch=2048, bag=(0, 40), zipf=1.05),
        Workload("W3", tables=1, rows=5_000_000, dim=32, batch=8192, bag=(10, 10), zipf=None),
    )
}


@dataclasses.dataclass(frozen=True)
class Batch:
    """One batch, table by table.

    Attributes:
      ids: per table, the rows looked up, bag after bag.
      offsets: per table, (batch + 1,) where each bag begins.
    """

    ids: Sequence[np.ndarray]
    offsets: Sequence[np.ndarray]


def batches(workload: Workload, count: int = NUM_BATCHES) -> list[Batch]:
    """Return the same ``count`` batches every time."""
    rng = np.random.default_rng(0)
    cumulative = None
    if workload.zipf is not None:
        weights = np.arange(1, workload.rows + 1, dtype=np.float64) ** -workload.zipf
        cumulative = np.cumsum(weights / weights.sum())
    orders = [rng.permutation(workload.rows).astype(np.int32) for _ in range(workload.tables if workload.zipf else 0)]

    def draw(table: int, size: int) -> np.ndarray:
        if cumulative is None:
            return rng.integers(0, workload.rows, size, dtype=np.int32)
        ranks = np.minimum(np.searchsorted(cumulative, rng.random(size)), workload.rows - 1)
        return orders[table][ranks]

    result = []
    for _ in range(count):
        ids, offsets = [], []
        for table in range(workload.tables):
            lengths = rng.integers(workload.bag[0], workload.bag[1] + 1, workload.batch)
            offsets.append(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
            ids.append(draw(table, int(offsets[-1][-1])))
        result.append(Batch(ids, offsets))
    return result


def after_warm_up(run: Callable[[int], T], block: Sequence[int], seconds: float) -> list[T]:
    """Call ``run`` on each batch of the block, and on following ones until `BLOCK_SECONDS` have passed.

    Before that come as many runs as fit into ``seconds``, two at least, which do not count.
    """
    end, i = time.perf_counter() + seconds, 0
    while i < 2 or time.perf_counter() < end:
        run((block[0] - 1 - i) % NUM_BATCHES)
        i += 1
    end = time.perf_counter() + BLOCK_SECONDS
    results = [run(batch) for batch in block]
    while time.perf_counter() < end:
        results.append(run((block[0] + len(results)) % NUM_BATCHES))
    return results
