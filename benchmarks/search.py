"""Search of items, in turns: exact (on a GPU, where there is one) beside FAISS's IndexFlatIP on the processor's cores,
and approximate beside exact. Steps are printed as they end, with the seconds since the start.

``python -m benchmarks.search [--rows 1000000] [--dim 64] [--batch 64] [--k 100] [--rounds 15] [--approximate ivf]``;
needs faiss-cpu. Items of --approximate come from a mixture of Gaussians, as trained towers give them, others from one.
"""

import argparse
import concurrent.futures
import os
import statistics
import time

import faiss
import jax
import numpy as np

from sparrow.kernels.search import RowsOnDevice, best_rows

CENTERS, SPREAD, JUDGES = 2000, 0.5, 1000
DRAWN = 2**17
"""Rows that a thread draws at a time."""
START = time.perf_counter()


def note(text):
    print(f"{time.perf_counter() - START:6.1f} s  {text}", flush=True)


def drawn(rows, dim):
    """Items of one Gaussian, drawn by all cores: block by block, each with a seed of its own."""
    made = np.empty((rows, dim), np.float32)

    def fill(first):
        np.random.default_rng([1, first]).standard_normal(dtype=np.float32, out=made[first : first + DRAWN])

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(fill, range(0, rows, DRAWN)))
    return made


def clustered(random, rows, dim):
    """Items around centers, and queries that are items with noise."""
    centers = random.standard_normal((CENTERS, dim), np.float32)
    items = centers[random.integers(0, CENTERS, rows)]
    items += SPREAD * random.standard_normal((rows, dim), np.float32)
    queries = items[random.integers(0, rows, JUDGES)] + SPREAD * random.standard_normal((JUDGES, dim), np.float32)
    return items, queries.astype(np.float32)


def in_turns(ways, rounds):
    """Return the median seconds of each way."""
    seconds = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begin = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(times) for name, times in seconds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"rows": 1_000_000, "dim": 64, "batch": 64, "k": 100, "rounds": 15}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--approximate", choices=("ivf", "ivf_sq8", "hnsw"))
    options = parser.parse_args()
    random, k = np.random.default_rng(0), options.k
    if options.approximate is None:
        rows = drawn(options.rows, options.dim)
        note(f"drew {options.rows:,} x {options.dim}, {rows.nbytes / 1e9:.2f} GB")
        queries = random.standard_normal((options.batch, options.dim), np.float32)
        index = faiss.IndexFlatIP(options.dim)
        index.add(rows)
        note(f"FAISS {faiss.__version__} holds them, {faiss.omp_get_max_threads()} threads")
        held = RowsOnDevice.fitting(rows)
        note(f"exact search on {'the processor' if held is None else jax.local_devices()[0].device_kind}")
        ways = {
            "sparrow": lambda: (best_rows(queries, [rows], k) if held is None else held.best(queries, k))[1],
            "faiss": lambda: index.search(queries, k)[1],
        }
        found = {}
        for name, way in ways.items():
            found[name] = way()
            note(f"{name}: the first batch")
        print(f"rows at the same place: {np.mean(found['sparrow'] == found['faiss']):.4f}")
    else:
        from sparrow.retrieval import build_approximate

        rows, judges = clustered(random, options.rows, options.dim)
        note("drew items and queries")
        index = build_approximate(rows, options.approximate, judges)
        note(f"built {index.kind}: effort {index.effort}, recall@10 {index.recall:.4f}")
        queries = judges[: options.batch]
        ways = {
            "exact": lambda: best_rows(queries, [rows], k)[1],
            options.approximate: lambda: index.search(queries, k, None, None)[1],
        }
        found = {name: way()[:, :10] for name, way in ways.items()}
        kept = [np.isin(a, b).mean() for a, b in zip(found["exact"], found[options.approximate], strict=True)]
        print(f"recall@10 of the timed queries: {np.mean(kept):.4f}")
    middle = in_turns(ways, options.rounds)
    for name, value in middle.items():
        print(f"{name:8} {options.batch / value:10.1f} queries/s")
    first, second = ways
    ratio = middle[second] / middle[first]
    print(f"{first} / {second}: {ratio:.2f}, {second} / {first}: {1 / ratio:.2f}; {len(os.sched_getaffinity(0))} cores")


if __name__ == "__main__":
    main()
