"""A large config planned from 1 to 1,024 devices, and the plan's traffic and time beside real steps on 2, 4 and 8.

    python benchmarks/scaling.py            # the tables of docs/scaling.md
    python benchmarks/scaling.py --check    # real steps alone

The plan routes a batch of 65,536 examples of 26 ids. The check counts the bytes of the all-to-alls in the compiled
program of a step on virtual devices, and times it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from typing import Any

NAMES = [f"id_{i}" for i in range(26)]
COUNTS = [f"count_{i}" for i in range(13)]
BYTES = {"s32": 4, "f32": 4, "u32": 4, "bf16": 2}


def large(rows: int, dim: int, batch: int, devices: int | None = None) -> Any:
    """26 tables, a dense network of DLRM's usual size."""
    from sparrow import config

    return config.from_mapping(
        {
            "train": {
                "sparse_optimizer": {"name": "rowwise_adagrad", "learning_rate": 0.05},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.001},
                "batch_size": batch,
                "steps": 1000,
                "mesh": None if devices is None else {"data": devices},
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
                    "dense_mlp": {"hidden_units": [512, 256, dim]},
                    "final": {"hidden_units": [1024, 1024, 512, 256]},
                },
                "groups": {"sparse": NAMES, "dense": COUNTS},
            },
        }
    )


def planned() -> None:
    """Print the plan for many devices."""
    from sparrow import plan
    from sparrow.reports import size

    config = large(40_000_000, 128, 65_536)
    one = plan.plan(config)
    links = plan.Links(link=300e9, network=50e9, latency=20e-6, memory=3000e9)
    columns = ["devices", "processes", "memory of a device", "tables", "sent in the process", "sent to others"]
    columns += ["fullest pair, owner", "padding", "step, ms", "rows, ms", "exchange, ms", "dense, ms"]
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * 12)
    for devices in (8, 64, 256, 1024):
        many = plan.spread(config, one, devices, devices // 8, links)
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


def check(devices: int) -> dict[str, float]:
    """Compile and time a real step on ``devices`` virtual devices; count the bytes that it sends."""
    import jax

    from sparrow import plan
    from sparrow.config import train_pipeline
    from sparrow.runs import Program
    from sparrow.runs.loop.step import train_step

    config = large(20_000, 32, 2048)
    one = plan.plan(config)
    many = plan.spread(config, one, devices)
    program = Program.of(large(20_000, 32, 2048, devices))
    pipeline = train_pipeline(config)
    pipeline.prepare = program.preparer()
    feed = next(iter(pipeline)).feed
    state, step = program.init(), train_step(program)
    lowered = jax.jit(lambda s, f: step(s, (f,))).lower(state, feed).compile().as_text()
    lowered = re.sub(r"/\*.*?\*/", "", lowered)  # numbers of the elements of tuples
    found = re.findall(r"= \(?((?:\w+\[[\d,]*\][^ ]*,? ?)+)\)? all-to-all\(", lowered)
    arrays = [array for result in found for array in re.findall(r"(\w+)\[([\d,]*)\]", result)]
    # Values of rows have three dimensions, ids are integers: the rest are dense gradients.
    of_dense = [array for array in arrays if array[0] == "f32" and array[1].count(",") < 2]
    sent, dense = (
        sum(BYTES[kind] * _product(shape) for kind, shape in chosen) * (devices - 1) / devices
        for chosen in ([array for array in arrays if array not in of_dense], of_dense)
    )
    for _ in range(3):
        state, report = step(state, (feed,))
    times = []
    for _ in range(10):
        began = time.perf_counter()
        state, report = step(state, (feed,))
        jax.block_until_ready(report.loss)
        times.append(time.perf_counter() - began)
    planned = sum(stack.sent for stack in many.stacks.values())
    return {
        "devices": devices,
        "sent": sent,
        "planned": planned,
        "dense_sent": dense,
        "dense_planned": many.dense / 2 if devices > 2 else 0,
        "ms": 1e3 * sorted(times)[len(times) // 2],
        "planned_ms": 1e3 * (many.rows_seconds + many.ordered_seconds) * devices,
    }


def _product(shape: str) -> int:
    made = 1
    for number in shape.split(","):
        made *= int(number or 1)
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(check(options.one)))
        return
    for devices in (2, 4, 8):
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
        environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, __file__, "--one", str(devices)]
        print(subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout, end="")
    if not options.check:
        planned()


if __name__ == "__main__":
    main()
