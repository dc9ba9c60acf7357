"""A large config planned from 1 to 1,024 devices, and the plan's traffic and time beside real steps on 2, 4 and 8.

    python benchmarks/scaling.py            # the tables of benchmarks/results/scaling.md
    python benchmarks/scaling.py --check    # real steps alone, see scaling_check.py; a few minutes

The plan routes a batch of 65,536 examples of 26 ids.
"""

from __future__ import annotations

import argparse
from typing import Any

import scaling_check

NAMES = [f"id_{i}" for i in range(26)]
COUNTS = [f"count_{i}" for i in range(13)]


def large(rows: int, dim: int, batch: int, devices: int | None = None, small: bool = False) -> Any:
    """26 tables, a dense network of DLRM's usual size; or a small one, next to which tables take the time."""
    from sparrow import config

    return config.from_mapping(
        {
            "train": {
                "sparse_optimizer": {"name": "rowwise_adagrad", "learning_rate": 0.05},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.001},
                "batch_size": batch,
                "steps": 1000,
                "mesh": None if devices is None else {"data": devices, "placement": "rows"},
            },
            "tasks": {"click": {"label": "label", "losses": ["binary_cross_entropy"], "metrics": ["auc"]}},
            "data": {
                "train": {
                    "name": "clicks",
                    "impressions": 2 * batch,
                    "fields": len(NAMES),
                    "ids": min(rows, 100_000),
                    "counts": len(COUNTS),
                    "chunk_rows": batch,
                },
                "features": [
                    *({"kind": "id", "name": name, "num_buckets": rows, "embedding_dim": dim} for name in NAMES),
                    *({"kind": "raw", "name": name} for name in COUNTS),
                ],
            },
            "model": {
                "architecture": {
                    "name": "dlrm",
                    "dense_mlp": {"hidden_units": [dim] if small else [512, 256, dim]},
                    "final": {"hidden_units": [32] if small else [1024, 1024, 512, 256]},
                },
                "groups": {"sparse": NAMES, "dense": COUNTS},
            },
        }
    )


def planned() -> None:
    """Print the plan for many devices."""
    from sparrow import planning
    from sparrow.reports import size

    config = large(40_000_000, 128, 65_536)
    one = planning.plan(config)
    links = planning.Links(link=300e9, network=50e9, latency=20e-6, memory=3000e9)
    columns = ["devices", "processes", "memory of a device", "tables", "sent in the process", "sent to others"]
    columns += ["fullest pair, owner", "padding", "step, ms", "rows, ms", "exchange, ms", "dense, ms"]
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * 12)
    for devices in (8, 64, 256, 1024):
        many = planning.spread(config, one, devices, devices // 8, links)
        [stack] = many.stacks.values()
        cells = [
            devices,
            devices // 8,
            size(many.memory),
            size(many.tables),
            size(many.inside),
            size(many.between),
            f"{stack.fullest:.2f}, {stack.owners:.2f}",
            f"{stack.padding:.0%}",
            *(f"{1e3 * t:.2f}" for t in (many.seconds, many.rows_seconds, many.exchange_seconds, many.dense_seconds)),
        ]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    scaling_check.check()
    if not options.check:
        planned()


if __name__ == "__main__":
    main()
