"""The ids of benchmarks/host.py, and other ways to find the rows of 64-bit ids: pandas, NumPy, torch as ZCH does.

benchmarks/host.py starts it with an interpreter that has torch and pandas, writes one line for each run (the way, the
kind of batch, its number) and reads the seconds of processor time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]


def zipf(generator: np.random.Generator, rows: int, count: int, exponent: float = 1.05) -> npt.NDArray[np.int64]:
    """Numbers below ``rows``, skewed."""
    height = (rows ** (1 - exponent) - 1) * generator.random(count) + 1
    return np.minimum((height ** (1 / (1 - exponent))).astype(np.int64), rows) - 1


def ids_and_batches(ids: int, size: int) -> tuple[U64, dict[str, list[U64]]]:
    """Return distinct random ids, and four batches of them of each kind."""
    generator = np.random.default_rng(0)
    known = np.unique(generator.integers(0, 2**64, ids, np.uint64))
    generator.shuffle(known)
    return known, {
        "uniform": [known[generator.integers(0, len(known), size)] for _ in range(4)],
        "zipf": [known[zipf(generator, len(known), size)] for _ in range(4)],
    }


def ways(known: U64) -> dict[str, Callable[[U64], Any]]:
    """Return functions that find the rows of known ids, by name. None of them admits or evicts."""
    import pandas as pd
    import torch

    torch.set_num_threads(1)
    index = pd.Index(known)
    order = np.argsort(known)
    ascending = known[order]
    signed = known.view(np.int64)
    order_of_signed = np.argsort(signed)
    ordered, rows = torch.from_numpy(signed[order_of_signed]), torch.from_numpy(order_of_signed)

    def with_torch(batch: U64) -> Any:
        """Search the sorted ids, compare, take the rows; ids that are not there share the last row."""
        wanted = torch.from_numpy(batch.view(np.int64))
        at = torch.searchsorted(ordered, wanted).clamp_(max=len(ordered) - 1)
        return torch.where(ordered[at] == wanted, rows[at], len(ordered))

    def with_numpy(batch: U64) -> Any:
        at = np.minimum(np.searchsorted(ascending, batch), len(ascending) - 1)
        return np.where(ascending[at] == batch, order[at], -1)

    made = {"pandas Index.get_indexer": index.get_indexer, "torch.searchsorted, as ZCH does": with_torch}
    made["numpy.searchsorted"] = with_numpy
    for name, find in made.items():  # they must find the same rows
        assert np.array_equal(np.asarray(find(known[:1000])), np.arange(1000)), name
    return made


def main() -> None:
    known, batches = ids_and_batches(int(sys.argv[1]), int(sys.argv[2]))
    found = ways(known)
    import pandas as pd
    import torch

    versions = f"pandas {pd.__version__}, torch {torch.__version__}, NumPy {np.__version__}"
    print("\t".join([versions, *found]), flush=True)
    for line in sys.stdin:
        name, kind, number = line.rstrip("\n").split("\t")
        batch = batches[kind][int(number)]
        began = time.thread_time()
        found[name](batch)
        print(time.thread_time() - began, flush=True)


if __name__ == "__main__":
    main()
