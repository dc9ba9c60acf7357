"""Ids a second on one core: the planner of caches, and the id map beside other ways to find the rows of 64-bit ids.

    python benchmarks/host.py                    # 10M ids, batches of 1M
    python benchmarks/host.py --ids 1e6 --only ours
    python benchmarks/host.py --only plan        # 26 tables, 30M rows in all

Rates are by the CPU time of the thread, so that other work on the machine counts less; caches are still shared.
Run it with an interpreter that has torch and pandas for the peers; a missing one is left out.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
NEW = 20
"""One id in NEW is new where the table is full and rows are evicted."""


def zipf(generator: np.random.Generator, rows: int, count: int, exponent: float = 1.05) -> npt.NDArray[np.int64]:
    """Numbers below ``rows``, skewed."""
    height = (rows ** (1 - exponent) - 1) * generator.random(count) + 1
    return np.minimum((height ** (1 / (1 - exponent))).astype(np.int64), rows) - 1


def report(name: str, batches: dict[str, list[U64]], run: Callable[[U64], object], repeat: int = 2) -> None:
    """Print the best and the median rate over the batches."""
    for kind, given in batches.items():
        run(given[0])
        seconds = []
        for batch in given[1:] * repeat:
            began = time.thread_time()
            run(batch)
            seconds.append(time.thread_time() - began)
        best, median = len(batch) / min(seconds) / 1e6, len(batch) / float(np.median(seconds)) / 1e6
        print(f"  {name:44s} {kind:8s} {best:7.1f} M ids/s, median {median:.1f}", flush=True)


def ours(known: U64, batches: dict[str, list[U64]]) -> None:
    """Time the id map: find, train with a journal, train with evictions."""
    from sparrow.embedding.dynamic.id_map import Settings, id_map

    made = id_map(Settings(len(known)))
    size = len(batches["uniform"][0])
    began = time.perf_counter()
    for step, start in enumerate(range(0, len(known), size)):
        made.train(known[start : start + size], step)
        made.forget(step)
    print(f"  entered at {len(known) / (time.perf_counter() - began) / 1e6:.1f} M ids/s as {type(made).__name__}")
    steps = itertools.count(len(known) // size + 1)

    def train(batch: U64) -> None:
        step = next(steps)
        made.train(batch, step)
        made.forget(step - 2)  # two batches ahead of the steps

    report("sparrow, find", batches, lambda batch: made.find(batch, 0), 4)
    report("sparrow, train: known ids, with a journal", batches, train, 4)
    fresh = itertools.count(1)
    changed: dict[str, list[U64]] = {}
    for kind, given in batches.items():
        changed[kind] = [batch.copy() for batch in given]
        for batch in changed[kind]:
            batch[::NEW] = np.arange(len(batch[::NEW]), dtype=np.uint64) + np.uint64(next(fresh) << 40)
    report("sparrow, train: 5 % new, full, LRU", changed, train, 1)


def peers(known: U64, batches: dict[str, list[U64]]) -> None:
    """Ways to find known ids; none of them admits or evicts."""
    try:
        import pandas as pd

        index = pd.Index(known)
        report("pandas Index.get_indexer", batches, index.get_indexer, 1)
    except ImportError:
        print("  pandas is not installed")
    try:
        import torch

        torch.set_num_threads(1)
        ordered = torch.from_numpy(np.sort(known.view(np.int64)))

        def search(batch: U64) -> object:
            wanted = torch.from_numpy(batch.view(np.int64))
            return ordered[torch.searchsorted(ordered, wanted).clamp_(max=len(ordered) - 1)] == wanted

        report("torch.searchsorted, as ZCH does", batches, search, 1)
    except ImportError:
        print("  torch is not installed")
    ascending = np.sort(known)
    report("numpy.searchsorted", batches, lambda batch: np.searchsorted(ascending, batch), 1)


def plan(rows: int, tables: int = 26, count: int = 1_700_000, steps: int = 24) -> None:
    """Time the planner: mark the rows of a step, give them slots, renumber its ids."""
    import sparrow as sp
    from sparrow.embedding.host.planner import planner
    from sparrow.embedding.stacking import cache_of, stack_tables

    generator, each = np.random.default_rng(0), rows // tables
    starts = (np.arange(count) % tables * each).astype(np.int32)  # one id of each table, example by example
    for cache in (0.05, 0.2):
        specs = [
            sp.TableSpec(
                name=f"t{i}",
                vocabulary_size=each,
                embedding_dim=128,
                optimizer=sp.rules.SGD(0.1),
                memory=sp.HostMemory(cache=cache),
            )
            for i in range(tables)
        ]
        (logical,) = stack_tables(specs)
        made, seconds, coming, unique = planner(logical, cache_of(logical)), [], 0, 0
        window: list[npt.NDArray[np.int32]] = []
        for step in range(steps):
            ids = (zipf(generator, each, count) * 2654435761 % each).astype(np.int32) + starts
            began = time.thread_time()
            made.begin(step)
            made.see(ids, range(tables))
            window.append(ids)
            if step >= 4:
                oldest = window.pop(0)
                coming = sum(len(made.admit(table).in_rows) for table in range(tables))
                made.slots(oldest)
                made.end()
                seconds.append(time.thread_time() - began)
            unique = sum(made.needed(table) for table in range(tables))
        best, median = count / min(seconds) / 1e6, count / float(np.median(seconds)) / 1e6
        kind = f"{type(made).__name__}, cache {cache:.0%}: {unique:,} rows a step, {coming:,} come at the end"
        print(f"  {kind}: {best:.1f} M ids/s, median {median:.1f}", flush=True)


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=float, default=1e7, help="distinct ids that are known")
    parser.add_argument("--batch", type=float, default=1e6, help="ids in a batch")
    parser.add_argument("--only", choices=("ours", "peers", "plan"))
    parser.add_argument("--rows", type=float, default=3e7, help="rows of the tables whose caches are planned")
    options = parser.parse_args()
    if options.only in (None, "plan"):
        print(f"{int(options.rows):,} rows, steps of 1.7M ids, one thread")
        plan(int(options.rows))
    if options.only == "plan":
        return
    generator = np.random.default_rng(0)
    count, size = int(options.ids), int(options.batch)
    known = np.unique(generator.integers(0, 2**64, count, np.uint64))
    generator.shuffle(known)
    batches = {
        "uniform": [known[generator.integers(0, len(known), size)] for _ in range(4)],
        "zipf": [known[zipf(generator, len(known), size)] for _ in range(4)],
    }
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{len(known):,} ids, batches of {size:,}, one thread{load}")
    if options.only != "peers":
        ours(known, batches)
    if options.only != "ours":
        peers(known, batches)


if __name__ == "__main__":
    main()
