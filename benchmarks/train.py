"""Training end to end: the trainer against the bare step and against PyTorch. One run, interleaved, medians.

    python benchmarks/train.py                       # writes benchmarks/results/train.md
    python benchmarks/train.py --batches 20 --rounds 1 --rows 1000 --no-write

DeepFM over 26 tables, Parquet input, on the CPU. "bare step" is the jitted step on batches that are packed and ready.
PyTorch runs in an environment of its own, made by ``make bench-peers``; without it it is left out.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile
import time
from typing import Any

import jax

from sparrow import config as configs
from sparrow import runs
from sparrow.data import ClickLog, write_clicks
from sparrow.runs.loop.step import train_step

HERE = pathlib.Path(__file__).parent
PEERS_PYTHON = HERE.parent / ".venv-peers" / "bin" / "python"
FIELDS, DIM, BATCH = 26, 16, 4096
EPOCHS = 3  # of the trainer: the one-time cost of the first steps is then a small part
NAMES = [f"id_{i}" for i in range(FIELDS)]


def config(path: pathlib.Path, rows: int, hidden: list[int]) -> configs.Config:
    return configs.from_mapping(
        {
            "train": {
                "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.01},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.001},
                "batch_size": BATCH,
                "epochs": EPOCHS,
            },
            "tasks": {"click": {"label": "label", "losses": ["binary_cross_entropy"]}},
            "data": {
                "train": {"name": "parquet", "path": str(path)},
                "features": [{"kind": "id", "name": name, "num_buckets": rows, "embedding_dim": DIM} for name in NAMES],
                "shuffle_rows": 16 * BATCH,
                "drop_remainder": True,
            },
            "model": {
                "architecture": {"name": "deepfm", "deep": {"hidden_units": hidden}},
                "groups": {"wide": NAMES, "deep": NAMES},
            },
        }
    )


class BareStep:
    """The trainer's own step, on the same batches, all ready before it begins."""

    def __init__(self, config: configs.Config) -> None:
        self.program = runs.Program.of(config)
        self.state = self.program.init()
        pipeline = configs.train_pipeline(config, self.program.preparer())
        pipeline.epochs = 1
        self.feeds = [prepared.feed for prepared in pipeline]
        self.step = train_step(self.program)
        self.run(20)

    def run(self, steps: int) -> float:
        """Examples a second."""
        began = time.perf_counter()
        for index in range(steps):
            self.state, report = self.step(self.state, (self.feeds[index % len(self.feeds)],))
        jax.block_until_ready(report)
        return steps * BATCH / (time.perf_counter() - began)


class Torch:
    """The process of benchmarks/train_peers.py."""

    def __init__(self, path: pathlib.Path, rows: int, hidden: list[int]) -> None:
        command = [str(PEERS_PYTHON), str(HERE / "train_peers.py")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._ask(
            make={"path": str(path), "fields": FIELDS, "rows": rows, "dim": DIM, "batch": BATCH, "hidden": hidden}
        )

    def run(self, workers: int) -> float:
        """Examples a second."""
        speed: float = self._ask(train=workers)["examples_per_second"]
        return speed

    def close(self) -> None:
        self.process.communicate()

    def _ask(self, **order: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


def measure(path: pathlib.Path, rows: int, batches: int, hidden: list[int], rounds: int) -> dict[str, float]:
    """Medians over rounds in which all take turns, in examples a second."""
    ours = config(path, rows, hidden)
    bare = BareStep(ours)
    torch = Torch(path, rows, hidden) if PEERS_PYTHON.exists() else None
    speeds: dict[str, list[float]] = {}
    for _ in range(rounds):
        speeds.setdefault("bare step", []).append(bare.run(batches))
        speeds.setdefault("trainer", []).append(runs.train(ours, stream=io.StringIO()).examples_per_second)
        if torch is not None:
            for workers in (0, 1):
                speeds.setdefault(f"PyTorch, {workers} loader processes", []).append(torch.run(workers))
    if torch is not None:
        torch.close()
    return {name: statistics.median(values) for name, values in speeds.items()}


def table(hidden: list[int], speeds: dict[str, float]) -> str:
    best = max((speed for name, speed in speeds.items() if name.startswith("PyTorch")), default=None)
    lines = [f"Hidden layers {hidden}:", "", "| | examples/s | trainer is |", "|---|---:|---:|"]
    for name, speed in speeds.items():
        against = speeds["trainer"] / speed
        lines.append(f"| {name} | {speed:,.0f} | {'' if name == 'trainer' else f'{against:.2f}x'} |")
    share = speeds["trainer"] / speeds["bare step"]
    lines += [
        "",
        f"The trainer runs at {share:.0%} of the bare step"
        + ("." if best is None else f", and at {speeds['trainer'] / best:.2f} times PyTorch's best."),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of each table")
    parser.add_argument("--batches", type=int, default=200, help="batches in the data file, and of each epoch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hidden", nargs="+", default=["64,32", "512,256,128"], help="widths of the deep part")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "clicks.parquet"
        log = ClickLog(options.batches * BATCH, fields=FIELDS, ids=options.rows, chunk_rows=8 * BATCH)
        write_clicks(log, path)
        parts = []
        for text in options.hidden:
            hidden = [int(width) for width in text.split(",")]
            parts.append(table(hidden, measure(path, options.rows, options.batches, hidden, options.rounds)))
            print(parts[-1], flush=True)
    head = (
        f"# Training end to end\n\nDeepFM, {FIELDS} tables of {options.rows:,} rows, dim {DIM} (wide part: 1), "
        f"batch {BATCH}, Parquet input; sparse Adagrad, dense Adam; {os.cpu_count()} cores, {platform.machine()}, "
        f"jax {jax.__version__}. Medians of {options.rounds} rounds of {options.batches} batches, in turns; the "
        f"trainer makes {EPOCHS} epochs of them in a round.\n\n"
    )
    if not options.no_write:
        (HERE / "results" / "train.md").write_text(head + "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
