"""The feed stage by stage: the speed of each stage by itself, with 1 to many threads and no queues between stages.

    python benchmarks/feed.py                               # all workloads of benchmarks/train.py
    python benchmarks/feed.py --examples 65536 --rows 1000 --group 8192 --seconds 0.2 --threads 1,2

Every thread repeats one stage on chunks of its own: read (bytes from the page cache), decode (pages or lines to rows),
shuffle (the order of a window), fill (rows to the buffer of a batch), put (the buffer to the device, until it is
there), copy (memory to memory, for scale: the bytes of a batch), and all (one after the other).
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import train
import train_data

from sparrow import config as configs
from sparrow import runs
from sparrow.data.hashing import shuffled


class Work:
    """One thread's chunk, in every stage of its way."""

    def __init__(self, config: configs.Config, program: Any, chunk: int) -> None:
        self.preparer = program.preparer()
        pipeline = configs.train_pipeline(config, self.preparer)
        self.reader, self.converter = pipeline._reader, pipeline.converter
        self.chunk, self.batch = chunk % self.reader.num_chunks, config.train.batch_size
        self.encoded = self.reader.fetch(self.chunk)
        self.rows, _, _ = self.converter.decode(self.encoded, "error")
        self.order = shuffled(len(self.rows), 1)
        self.buffers = self.fill()
        self.target = [np.empty_like(buffer) for buffer in self.buffers]

    def read(self) -> Any:
        return self.reader.fetch(self.chunk)

    def decode(self) -> Any:
        return self.converter.decode(self.encoded, "error")

    def shuffle(self) -> Any:
        return shuffled(len(self.rows), 1)

    def fill(self) -> list[Any]:
        window, made = self.rows.take(self.order), []
        size = min(self.batch, len(window))
        for begin in range(0, len(window) - size + 1, size):
            piece = window.cut(begin, begin + size)
            fitted = self.preparer.measure(self.preparer.look([piece]))
            how, columns = fitted.plan.filled(fitted.given, fitted.capacity, fitted.others)
            made.append(fitted.plan.fill([fitted.given], how, [columns], 1)[0])
        return made

    def put(self) -> None:
        jax.block_until_ready([jax.device_put(buffer) for buffer in self.buffers])

    def copy(self) -> None:
        for target, buffer in zip(self.target, self.buffers, strict=True):
            np.copyto(target, buffer)

    def all(self) -> None:
        rows, _, _ = self.converter.decode(self.reader.fetch(self.chunk), "error")
        self.rows, self.order = rows, shuffled(len(rows), 1)
        self.buffers = self.fill()
        self.put()


STAGES = ("read", "decode", "shuffle", "fill", "put", "copy", "all")


def speed(works: list[Work], stage: str, seconds: float) -> float:
    """Examples a second of all threads together."""
    done = [0] * len(works)
    end = time.perf_counter() + seconds

    def repeat(place: int, run: Callable[[], Any], count: int) -> None:
        while time.perf_counter() < end:
            run()
            done[place] += count

    threads = [
        threading.Thread(target=repeat, args=(place, getattr(work, stage), len(work.rows)))
        for place, work in enumerate(works)
    ]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - began)


def main() -> None:
    on_gpu = jax.default_backend() == "gpu"
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000 if on_gpu else 100_000, help="of each table")
    parser.add_argument("--examples", type=int, default=2**21 if on_gpu else 2**17)
    parser.add_argument("--group", type=int, default=2**16 if on_gpu else 2**15, help="rows of a row group")
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each stage and number of threads")
    parser.add_argument("--threads", default=",".join(str(n) for n in (1, 2, 4, 8, 14) if n <= max(cores, 2)))
    parser.add_argument("--json", help="also write the figures there")
    options = parser.parse_args()
    counts = [int(number) for number in options.threads.split(",")]
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for workload, share in (("single", 1), ("text", 4), ("lists", 8)):
            group = options.group // (4 if workload == "lists" else 1)
            path = train_data.write(
                pathlib.Path(folder), workload, options.rows, options.examples // share, group, min(cores, 16)
            )
            case = train.Case(workload, 16, min(options.batch, group), (64, 32))
            config = train.config(case, path, options.rows, 1, on_gpu, 1)
            program = runs.Program.of(config)
            works = [Work(config, program, chunk) for chunk in range(max(counts))]
            bytes_ = sum(buffer.nbytes for buffer in works[0].buffers) / len(works[0].rows)
            print(
                f"\n{workload}: {bytes_:.0f} bytes an example to the device; million examples/s by threads", flush=True
            )
            print("| stage | " + " | ".join(map(str, counts)) + " |\n|---|" + "---:|" * len(counts))
            for stage in STAGES:
                speeds = [speed(works[:count], stage, options.seconds) for count in counts]
                found.setdefault(workload, {})[stage] = speeds
                print(f"| {stage} | " + " | ".join(f"{value / 1e6:.2f}" for value in speeds) + " |", flush=True)
                if options.json:
                    pathlib.Path(options.json).write_text(json.dumps({"threads": counts, "speeds": found}, indent=1))


if __name__ == "__main__":
    sys.exit(main())
