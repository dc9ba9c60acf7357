"""Exact search beside FAISS's IndexFlatIP, in turns on the same cores: queries per second and their ratio.

``python benchmarks/search.py [--rows 1000000] [--dim 64] [--batch 64] [--k 100] [--rounds 15]``; needs faiss-cpu.
"""

import argparse
import os
import statistics
import time

import faiss
import numpy as np

from sparrow.kernels.search import best_rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"rows": 1_000_000, "dim": 64, "batch": 64, "k": 100, "rounds": 15}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    rows = random.standard_normal((options.rows, options.dim), np.float32)
    queries = random.standard_normal((options.batch, options.dim), np.float32)
    index = faiss.IndexFlatIP(options.dim)
    index.add(rows)
    ways = {
        "sparrow": lambda: best_rows(queries, [rows], options.k)[1],
        "faiss": lambda: index.search(queries, options.k)[1],
    }
    seconds = {name: [] for name in ways}
    found = {name: way() for name, way in ways.items()}
    for _ in range(options.rounds):
        for name, way in ways.items():
            begin = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - begin)
    middle = {name: statistics.median(times) for name, times in seconds.items()}
    for name, value in middle.items():
        print(f"{name:8} {options.batch / value:10.1f} queries/s")
    print(f"sparrow / faiss: {middle['faiss'] / middle['sparrow']:.2f} on {len(os.sched_getaffinity(0))} cores")
    print(f"rows in common: {np.mean(found['sparrow'] == found['faiss']):.4f}")


if __name__ == "__main__":
    main()
