"""The feed alone, of this tree and of an older revision, on the same files and in turns.

    git worktree add --detach build/old 33136e2
    python benchmarks/feed_revisions.py build/old        # adds its figures to benchmarks/results/train.md
    python benchmarks/feed_revisions.py build/old --examples 81920 --rounds 2 --no-write

Each tree runs in a process of its own, with the interpreter of this one. Rates are of wall time, and of the processor
time of all its threads; one epoch comes first and is not counted: it compiles what has to be.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

HERE = pathlib.Path(__file__).parent
MARK = "\n## The feed alone, beside an older revision\n"


def serve(order: dict[str, Any]) -> None:
    """Run epochs of the feed when a line comes, and write their figures: the part that runs in either tree."""
    import jax

    from sparrow import config as configs
    from sparrow import runs

    names = [f"id_{i}" for i in range(order["fields"])]
    config = configs.from_mapping(
        {
            "train": {
                "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.01},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.001},
                "batch_size": order["batch"],
                "epochs": 1,
            },
            "tasks": {"click": {"label": "label", "losses": ["binary_cross_entropy"]}},
            "data": {
                "train": {"name": "parquet", "path": order["path"]},
                "features": [
                    {"kind": "id", "name": name, "num_buckets": order["rows"], "embedding_dim": 16} for name in names
                ],
                "shuffle_rows": 65536,
                "drop_remainder": True,
                **({"threads": order["threads"]} if order.get("threads") else {}),
            },
            "model": {
                "architecture": {"name": "deepfm", "deep": {"hidden_units": [64, 32]}},
                "groups": {"wide": names, "deep": names},
            },
        }
    )
    program = runs.Program.of(config)
    for _ in sys.stdin:
        prepare = program.preparer() if hasattr(program, "preparer") else program.prepare
        examples, first, last = 0, 0.0, None
        for prepared in configs.train_pipeline(config, prepare):
            if not first:
                first, used = time.perf_counter(), time.process_time()
            else:
                examples += prepared.feed.size if hasattr(prepared.feed, "size") else order["batch"]
            last = prepared.feed
        jax.block_until_ready(last)
        wall, cpu = time.perf_counter() - first, time.process_time() - used
        print(json.dumps({"wall": examples / wall, "cpu": examples / cpu}), flush=True)


class Tree:
    """The feed of one tree, in a process of its own."""

    def __init__(self, folder: pathlib.Path, order: dict[str, Any]) -> None:
        code = f"import json, sys, time\nfrom typing import Any\n{inspect.getsource(serve)}\nserve({order!r})\n"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
        )

    def run(self) -> dict[str, float]:
        """Return examples per second, of wall time and of processor time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        made: dict[str, float] = json.loads(self._process.stdout.readline())
        return made

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    import train_data

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path, help="a folder with the older revision")
    parser.add_argument("--rows", type=int, default=100_000, help="of each table")
    parser.add_argument("--examples", type=int, default=200 * 4096)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    old = options.old.resolve()
    if not (old / "sparrow").is_dir():
        raise SystemExit(f"{old} holds no sparrow: give the folder of an older revision")
    revision = subprocess.run(["git", "-C", str(old), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    with tempfile.TemporaryDirectory() as folder:
        path = train_data.write(pathlib.Path(folder), "single", options.rows, options.examples, 2**15, 2)
        order = {"path": str(path), "rows": options.rows, "batch": options.batch, "fields": train_data.FIELDS}
        trees = {"old": Tree(old, order), "new": Tree(HERE.parent, order)}
        trees["two"] = Tree(HERE.parent, {**order, "threads": 2})
        for tree in trees.values():
            tree.run()
        found: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
        for _ in range(options.rounds):
            for name, tree in trees.items():
                found[name].append(tree.run())
        for tree in trees.values():
            tree.close()
    lines = ["| | examples/s | examples for a second of processor time |", "|---|---:|---:|"]
    medians = {
        kind: {name: statistics.median(one[kind] for one in made) for name, made in found.items()}
        for kind in ("wall", "cpu")
    }
    label = {"old": f"revision {revision.stdout.strip() or old.name}", "new": "this one"}
    label["two"] = "this one, data.threads=2"
    lines += [f"| {label[name]} | {medians['wall'][name]:,.0f} | {medians['cpu'][name]:,.0f} |" for name in trees]
    ratios = [made[name] / made["old"] for name in ("new", "two") for made in medians.values()]
    lines += ["", ""]
    lines[-1] = (
        "{:.1f} times as fast, and {:.1f} times by processor time; with two threads {:.1f} and {:.1f}. ".format(*ratios)
        + f"Medians of {options.rounds} rounds in turns, {options.examples:,} examples of 26 single ids from "
        f"Parquet in each, batch {options.batch:,}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end."
    )
    print("\n".join(lines), flush=True)
    if not options.no_write:
        file = HERE / "results" / "train.md"
        file.write_text(file.read_text().split(MARK)[0].rstrip("\n") + "\n" + MARK + "\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
