"""Time of ranking among all items: `sparrow.metrics.catalog_ranks` and `catalog_metrics`, with seen items.

python benchmarks/catalog.py                              # a million items, 100,000 users
python benchmarks/catalog.py --users 2048                 # a part of it
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from sparrow import metrics


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--seen", type=int, default=50, help="items that each user has seen")
    given = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    query = rng.normal(size=(given.users, given.dim)).astype(np.float32)
    items = rng.normal(size=(given.items, given.dim)).astype(np.float32)
    chosen = rng.integers(0, given.items, given.users)
    users = np.repeat(np.arange(given.users), given.seen)
    seen = metrics.seen_by(users, rng.integers(0, given.items, len(users)), np.arange(given.users))
    metrics.catalog_ranks(query[:1], items, chosen[:1])  # compiles
    wall, cpu = time.perf_counter(), time.process_time()
    ranks = metrics.catalog_ranks(query, items, chosen, seen)
    found = metrics.catalog_metrics(ranks, np.arange(given.users), [20])
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{given.users:,} users, {given.items:,} items, dim {given.dim}: {wall:.1f} s, {cpu:.1f} s of CPU; {found}")


if __name__ == "__main__":
    main()
