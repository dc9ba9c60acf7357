"""The cost of following files: training on followed files compared with training on a list of the same files.

    python -m benchmarks.following [--files 24] [--rows 32768] [--turns 3]

26 tables of 100,000 rows and dimension 16. The two take turns; the figures are the ratios of their examples per second,
which leave out the first step, and per second of processor time, which include all. A followed run lists the folder,
opens each file when it is due, and writes its journal.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow import config, runs

TABLES, IDS, DIM = 26, 100_000, 16
NAMES = [f"id_{number}" for number in range(TABLES)]


def events(rng: np.random.Generator, rows: int) -> dict[str, Any]:
    """Return clicks: ids by a power law, labels by the first of them, and the time of now in milliseconds."""
    made: dict[str, Any] = {name: np.minimum(rng.zipf(1.2, rows), IDS).astype(np.int64) - 1 for name in NAMES}
    made["label"] = (rng.random(rows) < 0.1 + 0.3 * (made["id_0"] % 2)).astype(np.int8)
    made["time"] = np.full(rows, int(time.time() * 1000))
    return made


def write(path: Path, rows: dict[str, Any]) -> None:
    """Write a file under another name, and rename it."""
    partial = path.with_name(f".{path.name}")
    pq.write_table(pa.table(rows), partial, row_group_size=32768)
    partial.rename(path)


def base(train: dict[str, Any], batch: int = 4096, **sections: Any) -> config.Config:
    """Return the config of a small model over the tables."""
    return config.from_mapping(
        {
            "data": {
                "train": train,
                "time_column": "time",
                "time_unit": "ms",
                "features": [{"kind": "id", "name": name, "num_buckets": IDS, "embedding_dim": DIM} for name in NAMES],
            },
            "model": {
                "architecture": {"name": "dcn_v2", "deep": {"hidden_units": [32]}, "final": {"hidden_units": [16]}},
                "groups": {"all": NAMES},
            },
            "tasks": {"click": {"label": "label", "losses": ["binary_cross_entropy"], "metrics": ["auc"]}},
            "train": {
                "batch_size": batch,
                "epochs": 1,
                "sparse_optimizer": {"name": "rowwise_adagrad", "learning_rate": 0.05},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.001},
            },
            **sections,
        }
    )


def main() -> None:
    """Train in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=24)
    parser.add_argument("--rows", type=int, default=32768)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.files):
            write(Path(folder) / f"{number:05}.parquet", events(rng, given.rows))
        sources = {
            "fixed list": {"name": "parquet", "path": folder},
            "followed": {"name": "follow", "path": f"{folder}/*.parquet", "end_marker": folder},
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in sources}
        for turn in range(given.turns):
            for name in sources if turn % 2 == 0 else reversed(sources):
                began = time.process_time()
                made = runs.train(base(sources[name]), stream=io.StringIO())
                spent = time.process_time() - began
                found[name].append((made.examples_per_second, 1 / spent))
                speed = f"{made.examples_per_second:12,.0f} examples/s  {spent:6.1f} s of processor time"
                print(f"{name:10}  {speed}  load {os.getloadavg()[0]:.1f}", flush=True)
    fixed, followed = found.values()
    for number, what in enumerate(("examples/s", "examples per second of processor time")):
        ratios = [b[number] / a[number] for a, b in zip(fixed, followed, strict=True)]
        print(f"followed / fixed list, {what}: median {statistics.median(ratios):.3f}, {[round(r, 3) for r in ratios]}")


if __name__ == "__main__":
    main()
