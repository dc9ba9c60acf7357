"""Columns of every kind in one model: the feed by kind of column, the step, the trainer, evaluation and prediction.

    python benchmarks/mixed.py                        # 12 columns of strings, 8 of 64-bit ids, 13 numbers, 3 lists
    python benchmarks/mixed.py --kinds lists --only feed
    python benchmarks/mixed.py --examples 65536 --batch 4096 --rounds 1 --rows 1000

All take turns, and medians are printed: examples per second, and processor time of all threads per example. Two tasks
with sample weights (MMoE); a fifth of the numbers is missing, four of them are cut into buckets; a list holds 7 ids in
the mean, and 50 at most. Evaluation computes AUC and the grouped AUC of 100,000 users; prediction writes Parquet.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import train
import train_data

from sparrow import config as configs
from sparrow import runs
from sparrow.runs.evaluating.evaluation import Evaluator

KINDS = ("strings", "integers", "numbers", "lists")
SPEED, TIME = "examples/s", "µs of processor time"
METRICS = ["auc", {"name": "grouped_auc", "group_by": "user"}]


def features(kinds: list[str], rows: int) -> list[dict[str, Any]]:
    """Return the features of some kinds of columns."""
    made: list[dict[str, Any]] = []
    hashed = {"kind": "id", "hash_bucket_size": rows, "embedding_dim": 16}
    made += [hashed | {"name": name} for name in train_data.STRINGS if "strings" in kinds]
    made += [hashed | {"name": name} for name in train_data.INTEGERS if "integers" in kinds]
    for i, name in enumerate(train_data.NUMBERS if "numbers" in kinds else ()):
        buckets = {"boundaries": [j / 4 for j in range(-8, 9)], "embedding_dim": 16}
        made.append({"kind": "raw", "name": name} | (buckets if i < train_data.BUCKETS else {}))
    made += [hashed | {"name": name, "pooling": "mean"} for name in train_data.LISTS if "lists" in kinds]
    return made


def config(path: pathlib.Path, kinds: list[str], options: argparse.Namespace) -> configs.Config:
    used = features(kinds, options.rows)
    if not any("embedding_dim" in feature for feature in used):
        raise SystemExit("a model needs a table: choose another kind besides")
    source = {"name": "parquet", "path": str(path)}
    on_gpu = jax.default_backend() == "gpu"
    task = {"losses": ["binary_cross_entropy"], "metrics": METRICS, "sample_weight": "weight"}
    return configs.from_mapping(
        {
            "train": {
                "sparse_optimizer": {"name": "rowwise_adagrad" if on_gpu else "adagrad", "learning_rate": 0.01},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.001},
                "precision": "bfloat16" if on_gpu else "float32",
                "batch_size": options.batch,
                "epochs": options.epochs,
            },
            "tasks": {"click": task | {"label": "click"}, "buy": task | {"label": "buy"}},
            "data": {
                "train": source,
                "evaluate": source,
                "features": used,
                "shuffle_rows": 65536,
                "drop_remainder": True,
                "memory_ahead": 2**33,
                **({} if options.threads is None else {"threads": options.threads}),
            },
            "model": {
                "architecture": {
                    "name": "mmoe",
                    "num_experts": 3,
                    "expert_mlp": {"hidden_units": list(options.hidden)},
                    "task_towers": [{"task": name, "mlp": {"hidden_units": [32]}} for name in ("click", "buy")],
                },
                "groups": {"all": [feature["name"] for feature in used]},
            },
        }
    )


class Measured:
    """The parts of a run on the same rows; each call returns examples per second."""

    def __init__(self, config: configs.Config, path: pathlib.Path, examples: int) -> None:
        self.config, self.path, self.examples = config, path, examples
        self.ours = train.Ours(config, ready=8)
        self.evaluator = Evaluator(self.ours.program)
        self.folder = tempfile.TemporaryDirectory()

    def feed(self) -> float:
        return self.ours.feed()[0]

    def step(self) -> float:
        return self.ours.bare(40)

    def trainer(self) -> float:
        return self.ours.train(1)

    def evaluate(self) -> float:
        began = time.perf_counter()
        self.evaluator(self.ours.state)
        return self.evaluator.examples / (time.perf_counter() - began)

    def predict(self) -> float:
        began = time.perf_counter()
        out = pathlib.Path(self.folder.name) / "predictions.parquet"
        rows = runs.predict(self.ours.program, self.ours.state, str(self.path), out)
        return rows / (time.perf_counter() - began)


def measure(measured: Measured, names: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Return medians over rounds in which all take turns: examples per second, and µs of processor time of each.

    The processor time of a step and of the trainer counts their start, too, and is left out.
    """
    passes = {"feed": measured.config.train.epochs or 1, "evaluate": 1, "predict": 1}
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds + 1):  # the first compiles
        for name in names:
            work: Callable[[], float] = getattr(measured, name)
            used = time.process_time()
            speed = work()
            used = time.process_time() - used
            print(f"{name}: {speed:,.0f} examples/s", file=sys.stderr, flush=True)
            if number:
                own = found.setdefault(name, {})
                own.setdefault(SPEED, []).append(speed)
                if name in passes:
                    own.setdefault(TIME, []).append(1e6 * used / (passes[name] * measured.examples))
    return {name: {key: statistics.median(values) for key, values in own.items()} for name, own in found.items()}


def main() -> None:
    on_gpu = jax.default_backend() == "gpu"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000 if on_gpu else 100_000, help="of each table")
    parser.add_argument("--examples", type=int, default=2**21 if on_gpu else 2**19, help="in the files")
    parser.add_argument("--group", type=int, default=2**16 if on_gpu else 2**15, help="rows of a row group")
    parser.add_argument("--parts", type=int, default=16 if on_gpu else 2, help="files")
    parser.add_argument("--batch", type=int, default=16384)
    parser.add_argument("--epochs", type=int, default=8 if on_gpu else 2, help="of the feed alone and of the trainer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hidden", type=int, nargs="*", default=[256, 128] if on_gpu else [32])
    parser.add_argument("--threads", type=int, help="data.threads")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of columns, separated by commas")
    parser.add_argument("--only", default="feed,step,trainer,evaluate,predict", help="the parts, separated by commas")
    parser.add_argument("--data", help="the folder of the files, to use them again; a temporary one unless given")
    parser.add_argument("--json", help="also write the figures there")
    options = parser.parse_args()
    kinds, names = options.kinds.split(","), options.only.split(",")
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", f"{folder}/programs")
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        path = pathlib.Path(options.data or folder) / "mixed"
        if not path.exists():
            train_data.write(path.parent, "mixed", options.rows, options.examples, options.group, options.parts)
        found = measure(Measured(config(path, kinds, options), path, options.examples), names, options.rounds)
    device = f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores"
    print(f"{', '.join(kinds)}; batch {options.batch:,}; {device}\n\n| | examples/s | µs of processor time |")
    print("|---|---:|---:|")
    for name, values in found.items():
        spent = f"{values[TIME]:.2f}" if TIME in values else ""
        print(f"| {name} | {values[SPEED]:,.0f} | {spent} |", flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
