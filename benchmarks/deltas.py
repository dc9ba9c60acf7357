"""The stall of training by a delta checkpoint and by a complete one, the seconds until each is on disk, and its bytes.

    python -m benchmarks.deltas [--gigabytes 0.2] [--folder FOLDER] [--deltas 4] [--seconds 100]

26 tables with a slot of the same size; examples draw their ids from one row in a hundred. A run trains, and saves
deltas, each when the one before is on disk, then a complete checkpoint. The deltas stand on a checkpoint whose tables
are files of holes, so that the disk holds all rows once; nothing is timed of that one. A thread notes when each step is
done on the device. The stall is the longest time between two steps from the call that saves until the checkpoint is on
disk and old ones are removed, less the median of the steps before. Beside each are the seconds of its parts; everything
is written to a folder in FOLDER, and removed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import queue
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np

from sparrow import config, runs
from sparrow.checkpoint import folder as folders
from sparrow.checkpoint import writer
from sparrow.checkpoint.blocks import file_size
from sparrow.checkpoint.extents import Extent
from sparrow.data import Tables
from sparrow.embedding import Embedder
from sparrow.runs.loop.loop import Loop
from sparrow.runs.parts import saving

FEATURES = [f"id_{number}" for number in range(26)]
ONE_IN = 100
"""Examples have one row in ONE_IN of each table."""
BEFORE = 40
"""Steps before a save, whose median is compared."""


def run_config(rows: int, dim: int, batch: int, keep: int) -> config.Config:
    """Return a small model over large tables; saves are made by `Sequence` alone."""
    rng = np.random.default_rng(0)
    given: dict[str, Any] = {
        name: rng.integers(0, max(rows // ONE_IN, 1), 16 * batch) * ONE_IN + number
        for number, name in enumerate(FEATURES)
    }
    given["label"] = (rng.random(16 * batch) < 0.3).astype(np.float32)
    deltas = {"every_minutes": 600, "keep": keep, "deltas": {"every_seconds": 36000}}
    return config.from_mapping(
        {
            "data": {
                "train": Tables(given, chunk_rows=4 * batch),
                "features": [
                    {"kind": "id", "name": name, "num_buckets": rows, "embedding_dim": dim} for name in FEATURES
                ],
            },
            "model": {
                "architecture": {"name": "dcn_v2", "deep": {"hidden_units": [256]}, "final": {"hidden_units": [64]}},
                "groups": {"all": FEATURES},
            },
            "tasks": {"click": {"label": "label", "losses": ["binary_cross_entropy"], "metrics": []}},
            "train": {
                "batch_size": batch,
                "steps_per_call": 1,
                "steps": 1_000_000_000,
                "log_every_steps": 1_000_000,
                "traffic": 0,
                "tensorboard": False,
                "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.05},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.001},
                "checkpoint": deltas,
            },
        }
    )


class Parts:
    """The seconds of functions, by name, since they were last taken."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def around(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that adds its time."""

        def timed(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return work(*given, **named)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

        return timed

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Time the parts of a save: in the loop, and in the background."""
        inside = {
            "settle": (Loop, "settle"),
            "gather": (Embedder, "taken"),
            "dense": (saving, "arrays_of"),
            "begin": (folders.Checkpoints, "save"),
            "begin link": (folders.Checkpoints, "save_link"),
            "(difference)": (folders, "difference"),
            "(to host, sorted, written)": (folders, "write_link"),
            "(write)": (writer.PartFile, "write"),
            "(sync)": (writer.PartFile, "finish"),
            "(give back)": (folders, "give_back"),
        }
        with contextlib.ExitStack() as stack:
            for name, (holder, attribute) in inside.items():
                stack.enter_context(mock.patch.object(holder, attribute, self.around(name, getattr(holder, attribute))))
            yield

    def line(self) -> str:
        """Return the seconds of each, those in the background in brackets, and begin again."""
        shown = "  ".join(f"{name} {seconds:.3f}" for name, seconds in self.seconds.items())
        self.seconds.clear()
        return shown


class Holes:
    """Writes tables to their files, or leaves the files as they were made: of the right size, and empty."""

    def __init__(self) -> None:
        self.are_left = False
        self._write = writer.PartFile.write

    def write(self, part: Any, file: str, shape: tuple[int, ...], dtype: Any, pieces: Any) -> None:
        """Write one, in place of `PartFile.write`."""
        if self.are_left:
            part._extents[file] = [Extent(0, file_size(shape, dtype), 0)]
        else:
            self._write(part, file, shape, dtype, pieces)


class Times(threading.Thread):
    """Notes when each step is done."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.given: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.done: list[float] = []

    def run(self) -> None:
        """Wait for one step after the other."""
        while True:
            jax.block_until_ready(self.given.get())  # type: ignore[no-untyped-call]
            self.done.append(time.perf_counter())

    def gaps(self, begin: float, end: float) -> list[float]:
        """Return the seconds between steps, of those that overlap a time."""
        return [b - a for a, b in itertools.pairwise(self.done) if b >= begin and a <= end]


class Sequence:
    """Saves one checkpoint after the other, in place of the schedule of the run."""

    def __init__(self, given: argparse.Namespace, folder: Path, parts: Parts, holes: Holes) -> None:
        self._given, self._folder, self._parts, self._holes = given, folder / "checkpoints", parts, holes
        self._kinds = ["holes", *["delta"] * given.deltas, "complete"]
        self._began, self._ready = time.perf_counter(), 0
        self._number = 0
        self._now: tuple[str, int, float, float] | None = None
        self._on_disk: float | None = None
        self.times = Times()
        self.times.start()

    def made(self, loop: Loop) -> None:
        """Note a step that was given to the device."""
        assert loop.report is not None
        self.times.given.put(loop.report.go)

    def after_step(self, saver: Any, loop: Loop) -> None:
        """Save where the last save is on disk for long enough; show what it took."""
        if time.perf_counter() - self._began > self._given.seconds:
            if self._now is not None and self._on_disk is None:
                print("not on disk yet, so far: ", end="")
                self._show(*self._now, time.perf_counter())
            print(f"not done after {self._given.seconds:g} s", flush=True)
            shutil.rmtree(self._folder.parent.parent, ignore_errors=True)
            os._exit(1)
        if self._now is not None:
            is_tidy = saver._checkpoints._tidying.done()
            if self._on_disk is not None and is_tidy and len(self.times.done) >= self._ready:
                self._show(*self._now, self._on_disk)
                self._now, self._ready = None, loop.steps + BEFORE
            elif self._on_disk is None:
                self._ready = loop.steps + 2
            return
        if loop.steps < max(self._ready, BEFORE):
            return
        if self._number == len(self._kinds):
            loop.stop()
            saver._saved_at = loop.steps  # the end of a run saves everything once more
            return
        kind = self._kinds[self._number]
        self._number, self._on_disk = self._number + 1, None
        self._parts.line()
        began = time.perf_counter()
        self._holes.are_left = kind == "holes"
        saver.save(loop, delta=kind == "delta")
        self._now, self._ready = (kind, loop.steps, began, time.perf_counter() - began), loop.steps + 2
        threading.Thread(target=self._wait, args=(self._folder / str(loop.steps),), daemon=True).start()

    def _wait(self, path: Path) -> None:
        while not path.exists():
            time.sleep(0.002)
        self._on_disk = time.perf_counter()

    def _show(self, kind: str, step: int, began: float, in_call: float, on_disk: float) -> None:
        if kind == "holes":
            return
        times = self.times
        before = statistics.median(times.gaps(began - 1e9, began)[-BEFORE:-2])
        stall = max(times.gaps(began, time.perf_counter())) - before
        at_call = max(times.gaps(began, began + in_call)) - before
        size = sum(path.stat().st_size for path in (self._folder / str(step)).rglob("*") if path.is_file())
        print(f"{kind:9} stall {1000 * stall:8.1f} ms (by the call {1000 * at_call:.1f})  ", end="")
        print(f"on disk {on_disk - began:7.2f} s  {size / 1e6:10,.1f} MB  step {1000 * before:.1f} ms, ", end="")
        print(f"beside it {1000 * statistics.median(times.gaps(began, on_disk)):.1f} ms")
        print(f"          call {in_call:.3f} s: {self._parts.line()}", flush=True)


def main() -> None:
    """Train, and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    on_cpu = jax.default_backend() == "cpu"
    parser.add_argument("--gigabytes", type=float, default=0.2 if on_cpu else 40.0)
    parser.add_argument("--dim", type=int, default=16 if on_cpu else 128)
    parser.add_argument("--batch", type=int, default=2048 if on_cpu else 16384)
    parser.add_argument("--deltas", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    rows = int(given.gigabytes * 1e9 / len(FEATURES) / (2 * 4 * given.dim))
    print(f"{jax.devices()[0].device_kind}: {len(FEATURES)} tables of {rows:,} x {given.dim}, batch {given.batch:,}")
    if given.folder is not None:
        given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        free = shutil.disk_usage(name).free / 1e9
        print(f"disk: {free:.0f} GB free; memory of the host: {len(os.sched_getaffinity(0))} cores", flush=True)
        parts = Parts()
        holes = Holes()
        sequence = Sequence(given, Path(name) / "run", parts, holes)
        real = Loop._make

        def make(loop: Loop, call: Any) -> None:
            real(loop, call)
            sequence.made(loop)

        with (
            mock.patch.object(writer.PartFile, "write", lambda *given: holes.write(*given)),
            parts.watched(),
            mock.patch.object(Loop, "_make", make),
            mock.patch.object(saving.Saver, "after_step", lambda saver, loop: sequence.after_step(saver, loop)),
        ):
            runs.train(run_config(rows, given.dim, given.batch, keep=1), Path(name) / "run", stream=io.StringIO())
    print("done", flush=True)


if __name__ == "__main__":
    main()
