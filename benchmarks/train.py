"""Training end to end: the trainer against the bare step, the feed alone, and PyTorch. One run, in turns, medians.

    python benchmarks/train.py                       # on a CPU: writes benchmarks/results/train.md
    python benchmarks/train.py                       # on a GPU: writes benchmarks/results/train_gpu.md
    python benchmarks/train.py --examples 40960 --rounds 1 --rows 1000 --no-write

DeepFM over 26 tables. "bare step" is the jitted step on batches that are packed and ready; "feed alone" takes batches
to the device and throws them away. On a GPU, the trainer runs with several steps in one call, too, and the better of
both is compared. PyTorch runs in an environment of its own, made by ``make bench-peers``, or in that
of ``--peer-python``; without it it is left out. On a GPU it needs FBGEMM, installed or in the folder that the variable
``FBGEMM`` names.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import io
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import jax
import train_data

from sparrow import config as configs
from sparrow import runs
from sparrow.data import Criteo
from sparrow.runs.loop import set_up
from sparrow.runs.step import step as steps

HERE = pathlib.Path(__file__).parent
TRAINER = "trainer"
NAMES = [f"id_{i}" for i in range(train_data.FIELDS)]


@dataclasses.dataclass(frozen=True)
class Case:
    """What is trained: a workload, the tables' dim, the batch size, the widths of the deep part."""

    workload: str
    dim: int
    batch: int
    hidden: tuple[int, ...]

    def __str__(self) -> str:
        what = {"single": "26 single ids, Parquet", "text": "Criteo's text", "lists": "214 ids in lists, Parquet"}
        return f"{what[self.workload]}; dim {self.dim}, batch {self.batch:,}, hidden {list(self.hidden)}"


CPU = [Case("single", 16, 4096, (64, 32)), Case("single", 16, 4096, (512, 256, 128)), Case("text", 16, 4096, (64, 32))]
GPU = [
    Case("single", 16, 8192, (512, 256, 128)),
    Case("single", 16, 65536, (512, 256, 128)),
    Case("single", 128, 8192, (512, 256, 128)),
    Case("single", 128, 65536, (512, 256, 128)),
    Case("text", 16, 65536, (512, 256, 128)),
    Case("lists", 16, 8192, (512, 256, 128)),
    Case("lists", 16, 65536, (512, 256, 128)),
]
GPU_PEERS = [case for case in GPU if case.workload != "single" or case == GPU[1]]
CALLS = (1, 8)  # steps in a call of the trainer on a GPU


def config(case: Case, path: pathlib.Path, rows: int, epochs: int, on_gpu: bool, threads: int | None) -> configs.Config:
    features: list[dict[str, Any]]
    if case.workload == "text":
        source: dict[str, Any] = {"name": "csv", "path": str(path), "separator": "\t", "quote": None}
        source["columns"] = Criteo(str(path)).column_names()
        categories = [f"category_{i}" for i in range(1, 27)]
        counts = [f"count_{i}" for i in range(1, 14)]
        features = [{"kind": "id", "name": n, "hash_bucket_size": rows, "embedding_dim": case.dim} for n in categories]
        features += [{"kind": "raw", "name": n, "log": True} for n in counts]
        groups = {"wide": categories, "deep": categories + counts}
    else:
        source = {"name": "parquet", "path": str(path)}
        features = [{"kind": "id", "name": n, "num_buckets": rows, "embedding_dim": case.dim} for n in NAMES]
        if case.workload == "lists":
            features = [feature | {"pooling": "sum"} for feature in features]
        groups = {"wide": NAMES, "deep": NAMES}
    return configs.from_mapping(
        {
            "train": {
                "sparse_optimizer": {"name": "rowwise_adagrad" if on_gpu else "adagrad", "learning_rate": 0.01},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.001},
                "precision": "bfloat16" if on_gpu else "float32",
                "batch_size": case.batch,
                "epochs": epochs,
            },
            "tasks": {"click": {"label": "label", "losses": ["binary_cross_entropy"]}},
            "data": {
                "train": source,
                "features": features,
                "shuffle_rows": 65536,
                "drop_remainder": True,
                "memory_ahead": 2**33,
                **({} if threads is None else {"threads": threads}),
            },
            "model": {
                "architecture": {"name": "deepfm", "deep": {"hidden_units": list(case.hidden)}},
                "groups": groups,
            },
        }
    )


class Ours:
    """The bare step, the feed alone and the trainer, on the same files."""

    def __init__(self, config: configs.Config, ready: int) -> None:
        self.config = config
        self.program = runs.Program.of(config)
        self.state = self.program.init()
        self.feeds = []
        for prepared in self._pipeline():
            self.feeds.append(prepared.feed)
            if len(self.feeds) == ready:
                break
        self.step = steps.Steps(self.program).one
        self.bare(20)

    def _pipeline(self) -> Any:
        return configs.train_pipeline(self.config, self.program.preparer())

    def bare(self, steps: int) -> float:
        """Examples a second of steps whose batches are on the device."""
        began = time.perf_counter()
        for index in range(steps):
            self.state, report = self.step(self.state, (self.feeds[index % len(self.feeds)],))
        jax.block_until_ready(report)
        return steps * self.config.train.batch_size / (time.perf_counter() - began)

    def feed(self) -> tuple[float, dict[str, float]]:
        """Examples a second of batches that go to the device and nowhere else, and the seconds of each stage."""
        preparer = self.program.preparer()
        pipeline = configs.train_pipeline(self.config, preparer)  # as many epochs as the trainer makes
        examples, began, last = 0, 0.0, None
        for prepared in pipeline:
            if not began:
                began = time.perf_counter()
            else:
                examples += prepared.examples
            last = prepared.feed
        jax.block_until_ready(last)
        seconds = time.perf_counter() - began
        stages = {
            name: pipeline.stages.seconds[name] + preparer.stages.seconds[name] for name in pipeline.stages.seconds
        }
        return examples / seconds, stages

    def train(self, steps_per_call: int) -> float:
        """Examples a second of the trainer."""
        train = self.config.train.model_copy(update={"steps_per_call": steps_per_call})
        gc.collect()  # tables of an earlier run may be in a cycle, and fill the device
        return runs.train(self.config.model_copy(update={"train": train}), stream=io.StringIO()).examples_per_second

    def loop(self) -> float:
        """Seconds of Python in one iteration of the trainer: its batches are ready, and its step does nothing."""
        real, batches = steps.Steps.one, self.feeds
        report = self.step(self.state, (batches[0],))
        self.state = report[0]

        def idle(own: Any, state: Any, feeds: Any, go: Any = None) -> Any:
            return state, report[1]

        pipeline = configs.train_pipeline(self.config, self.program.preparer())
        ready = list(zip(range(8), pipeline, strict=False))

        class Ready(type(pipeline)):  # type: ignore[misc]
            def __iter__(self) -> Any:
                for _ in range(2000):
                    yield ready[0][1]

        steps.Steps.one, made = idle, []
        train_pipeline = set_up.train_pipeline
        set_up.train_pipeline = lambda config: _as(Ready, train_pipeline(config))
        try:
            one = self.config.train.model_copy(update={"epochs": None, "steps": 2000, "steps_per_call": 1})
            trained = runs.train(self.config.model_copy(update={"train": one}), stream=io.StringIO())
            made.append(self.config.train.batch_size / trained.examples_per_second)
        finally:
            steps.Steps.one, set_up.train_pipeline = real, train_pipeline
        return made[0]


def _as(kind: type, pipeline: Any) -> Any:
    pipeline.__class__ = kind
    return pipeline


class Torch:
    """The process of benchmarks/train_peers.py. Its errors are printed, and end nothing else."""

    LONGEST = 180.0  # seconds for an answer

    def __init__(self, python: str, case: Case, path: pathlib.Path, rows: int, examples: int) -> None:
        command = [python, str(HERE / "train_peers.py")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        make = {"workload": case.workload, "path": str(path), "rows": rows, "examples": examples}
        make |= {"dim": case.dim, "batch": case.batch, "hidden": case.hidden}
        self.kind = self._ask(make=make).get("kind")

    def run(self, workers: int) -> float | None:
        """Examples a second; None: it failed."""
        return None if self.kind is None else self._ask(train=workers).get("examples_per_second")

    def close(self) -> None:
        try:
            self.process.communicate(timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()

    def _ask(self, **order: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        watch = threading.Timer(self.LONGEST, self.process.kill)
        watch.start()
        answer: dict[str, Any] = {"error": "its process ended"}
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            if line := self.process.stdout.readline():
                answer = json.loads(line)
        except OSError:  # it ended before
            pass
        finally:
            watch.cancel()
        if "error" in answer:
            print(f"PyTorch, {order}: {answer['error']}", file=sys.stderr, flush=True)
        return answer


def measure(case: Case, path: pathlib.Path, examples: int, options: argparse.Namespace, on_gpu: bool) -> dict[str, Any]:
    """Medians over rounds in which all take turns, in examples per second."""
    ours = Ours(config(case, path, options.rows, options.epochs, on_gpu, options.threads), ready=16)
    workers = [int(number) for number in options.workers.split(",")]
    speeds: dict[str, list[float]] = {}
    stages: dict[str, float] = {}
    torch = None
    has_peer = options.peer_python and pathlib.Path(options.peer_python).exists()
    if has_peer and case in (GPU_PEERS if on_gpu else CPU):
        torch = Torch(options.peer_python, case, path, options.rows, examples)
    for _ in range(options.rounds):
        speeds.setdefault("bare step", []).append(ours.bare(options.steps))
        speed, stages = ours.feed()
        speeds.setdefault("feed alone", []).append(speed)
        for calls in CALLS if options.calls or on_gpu else CALLS[:1]:
            name = TRAINER if calls == 1 else f"{TRAINER} with {calls} steps a call"
            speeds.setdefault(name, []).append(ours.train(calls))
        if torch is not None:
            for number in workers:
                if (speed_of_torch := torch.run(number)) is not None:
                    name = f"PyTorch ({torch.kind}), {number} loader processes"
                    speeds.setdefault(name, []).append(speed_of_torch)
    if torch is not None:
        torch.close()
    result = {name: statistics.median(values) for name, values in speeds.items()}
    total = sum(stages.values())
    return {"case": str(case), "speeds": result, "stages": {name: value / total for name, value in stages.items()}}


def table(result: dict[str, Any]) -> str:
    speeds = result["speeds"]
    best = max((speed for name, speed in speeds.items() if name.startswith("PyTorch")), default=None)
    lines = [f"{result['case']}:", "", "| | examples/s | trainer is |", "|---|---:|---:|"]
    ours = max((name for name in speeds if name.startswith(TRAINER)), key=lambda name: speeds[name])
    for name, speed in speeds.items():
        lines.append(f"| {name} | {speed:,.0f} | {'' if name == ours else f'{speeds[ours] / speed:.2f}x'} |")
    share = speeds[ours] / speeds["bare step"]
    shares = ", ".join(f"{name} {value:.0%}" for name, value in result["stages"].items())
    lines += [
        "",
        f"The {ours} runs at {share:.0%} of the bare step"
        + ("" if best is None else f", and at {speeds[ours] / best:.2f} times PyTorch's best")
        + f". The feed's threads spend: {shares}.",
    ]
    return "\n".join(lines)


def main() -> None:
    on_gpu = jax.default_backend() == "gpu"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000 if on_gpu else 100_000, help="of each table")
    parser.add_argument("--examples", type=int, default=2**22 if on_gpu else 200 * 4096, help="in the files")
    parser.add_argument("--group", type=int, default=2**16 if on_gpu else 2**15, help="rows of a row group")
    parser.add_argument("--parts", type=int, default=16 if on_gpu else 2, help="files")
    parser.add_argument("--epochs", type=int, default=24 if on_gpu else 3, help="of the feed alone and of the trainer")
    parser.add_argument("--steps", type=int, default=200, help="of the bare step")
    parser.add_argument("--rounds", type=int, default=2 if on_gpu else 3)
    parser.add_argument("--minutes", type=float, default=8.0 if on_gpu else 60.0, help="begin no case after these")
    parser.add_argument("--calls", action="store_true", help="train with several steps in a call on a CPU, too")
    parser.add_argument("--threads", type=int, help="data.threads")
    parser.add_argument("--cases", help="indices of the cases to run, such as 0,2; all unless given")
    parser.add_argument("--workers", default="8,14" if on_gpu else "0,1", help="PyTorch's loader processes")
    parser.add_argument("--peer-python", default=str(HERE.parent / ".venv-peers" / "bin" / "python"))
    parser.add_argument("--json", help="also write the figures there, after each case")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    cases = GPU if on_gpu else CPU
    if options.cases:
        cases = [cases[int(index)] for index in options.cases.split(",")]
    results, overhead, begun = [], None, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        # A trainer of the next round finds its programs compiled; no figure counts their compilation.
        jax.config.update("jax_compilation_cache_dir", f"{folder}/programs")
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        paths: dict[str, pathlib.Path] = {}
        sizes: dict[str, int] = {}
        for case in cases:
            if time.perf_counter() - begun > options.minutes * 60 and results:
                print(f"left out, there is no time for it: {case}", file=sys.stderr, flush=True)
                continue
            if case.workload not in paths:
                # Lists and lines take more room: fewer of them.
                share = {"single": 1, "text": 4, "lists": 4}[case.workload]
                size, group = options.examples // share, options.group
                began = time.perf_counter()
                made = train_data.write(pathlib.Path(folder), case.workload, options.rows, size, group, options.parts)
                paths[case.workload], sizes[case.workload] = made, size
                print(f"wrote {size:,} examples in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
            results.append(measure(case, paths[case.workload], sizes[case.workload], options, on_gpu))
            print(f"{table(results[-1])}\n\n({time.perf_counter() - begun:.0f} s so far)\n", flush=True)
            if options.json:
                pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
        first = cases[0]
        ours = Ours(config(first, paths[first.workload], options.rows, 1, on_gpu, options.threads), ready=1)
        overhead = ours.loop()
        print(f"Python in one iteration of the trainer: {overhead * 1e3:.3f} ms", flush=True)
    device = jax.devices()[0].device_kind
    head = (
        f"# Training end to end on {'a GPU' if on_gpu else 'a CPU'}\n\nDeepFM, 26 tables of {options.rows:,} rows "
        f"(wide part: dim 1), {'row-wise Adagrad, bfloat16' if on_gpu else 'sparse Adagrad'}, dense Adam; {device}, "
        f"{os.cpu_count()} cores, {platform.machine()}, jax {jax.__version__}. Medians of {options.rounds} rounds, in "
        f"turns; {options.examples:,} examples, of which the trainer makes {options.epochs} epochs in a round. "
        f"Python's part of an iteration of the trainer, with a step that does nothing: {overhead * 1e3:.3f} ms.\n\n"
    )
    if not options.no_write:
        name = "train_gpu.md" if on_gpu else "train.md"
        (HERE / "results" / name).write_text(head + "\n\n".join(map(table, results)) + "\n")


if __name__ == "__main__":
    main()
