"""CPU kernels against their peers: one run, interleaved, medians.

    python benchmarks/cpu.py                    # all workloads and optimizers; writes benchmarks/results/cpu.md
    python benchmarks/cpu.py --workloads W1 --optimizers SGD --rounds 10 --no-write

A training job runs its own step again and again, and finds the processor's caches as its last step left them. So the
contenders take turns in blocks of consecutive runs. A block begins when nothing else runs on the machine: two threads
that wait for each other suffer more from a third than one does. Its first runs find the caches as another contender
left them, and processors that just slept; they do not count, for the same stretch of time for all. (One run at a time,
turn by turn, measures each with the others' rows in the last-level cache.)

The peers (FBGEMM, PyTorch) run in their own environment, made by ``make bench-peers``; without it they are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import time
from typing import Any

import numpy as np
from cpu_ours import BACKENDS, Ours
from cpu_report import Result, report, tables
from floor import Floor
from workloads import NUM_BATCHES, WORKLOADS, Batch, Workload, batches

from sparrow.kernels.native.library import load

HERE = pathlib.Path(__file__).parent
PEERS_PYTHON = HERE.parent / ".venv-peers" / "bin" / "python"
OPTIMIZERS = ("SGD", "Adagrad", "RowwiseAdagrad", "Adam", "PartialRowwiseAdam")
FBGEMM = ("fbgemm", "fbgemm 1t", "fbgemm 2x1")
PEERS = {
    "SGD": (*FBGEMM, "torch"),
    "Adagrad": (*FBGEMM, "torch"),
    "RowwiseAdagrad": FBGEMM,
    "Adam": ("torch",),
    "PartialRowwiseAdam": (),
}
BLOCK = 8  # runs of a block that count, at least
WARM_UP = 0.15  # seconds of runs before them
SLOW_BLOCK, SLOW_ROUNDS = 2, 3  # xla has no bar to reach: shorter blocks, in every third round


def wait_until_idle(limit: float = 20.0) -> bool:
    """Wait until no other process runs, at most ``limit`` seconds; return whether there was such a moment."""
    try:
        load = pathlib.Path("/proc/loadavg")
        idle, end = 0, time.monotonic() + limit
        while idle < 5 and time.monotonic() < end:
            time.sleep(0.01)
            running = int(load.read_text().split()[3].split("/")[0])  # this process included
            idle = idle + 1 if running <= 1 else 0
    except OSError:
        return True  # not Linux: the load is unknown
    return idle >= 5


class PeerProcess:
    """FBGEMM or torch in a process of its own, which times itself. Begins to set itself up; `receive` waits for it."""

    def __init__(self, workload: str, kind: str, optimizer: str) -> None:
        self.process = subprocess.Popen(
            [str(PEERS_PYTHON), str(HERE / "cpu_peers.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONWARNINGS": "ignore"},
        )
        self.send(make=[workload, kind, optimizer])

    def send(self, **order: Any) -> None:
        """Send one order."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """Wait for the answer to the last order."""
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(f"a peer failed: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


class Contenders:
    """All that run on one workload and optimizer, by name."""

    def __init__(self, workload: Workload, optimizer: str, data: list[Batch], with_xla: bool) -> None:
        self.names = [name for name in BACKENDS if with_xla or name != "xla"]
        self.ours = Ours(workload, optimizer, data)
        for operation in ("lookup", "step"):  # moves the tables to large pages, before the others fill the memory
            self.ours.run("native", operation, range(NUM_BATCHES), WARM_UP)
        self.processes: dict[str, PeerProcess] = {}
        for name in PEERS[optimizer] if PEERS_PYTHON.exists() else ():
            if name == "fbgemm 2x1" and workload.tables == 1:
                continue  # one table cannot be halved
            self.names.append(name)
            if name != "fbgemm 1t":  # has the tables of "fbgemm"
                self.processes[name] = PeerProcess(workload.name, name, optimizer)
        for process in self.processes.values():
            process.receive()

    def run(self, name: str, operation: str, block: list[int]) -> list[float]:
        """Return the seconds of each run of a block."""
        if name in BACKENDS:
            return self.ours.run(name, operation, block, WARM_UP)
        process = self.processes["fbgemm" if name == "fbgemm 1t" else name]
        threads = 1 if name in ("fbgemm 1t", "fbgemm 2x1") else os.cpu_count()
        process.send(run=operation, block=block, threads=threads, warm_up=WARM_UP)
        seconds: list[float] = process.receive()["seconds"]
        return seconds

    def close(self) -> None:
        """End the peers' processes."""
        for process in self.processes.values():
            process.close()


def measure(workload: Workload, optimizer: str, rounds: int, with_lookup: bool, with_xla: bool) -> list[Result]:
    """Time all contenders on one workload and optimizer, block by block, round after round."""
    data = batches(workload)
    contenders = Contenders(workload, optimizer, data, with_xla)
    library = load()
    level = library if isinstance(library, str) else library.level
    rows = [np.concatenate([ids + i * workload.rows for i, ids in enumerate(batch.ids)]) for batch in data]
    floor = Floor(workload.tables * workload.rows, workload.dim, os.cpu_count() or 1, level, rows)
    operations = ("lookup", "step") if with_lookup else ("step",)
    lookups, touched = statistics.mean(map(len, rows)), statistics.mean(map(len, floor.touched))
    bags, shapes = workload.tables * workload.batch, contenders.ours.step_of_row.slot_shapes
    vectors = sum(shape != () for shape in shapes)
    times: dict[str, dict[str, dict[int, float]]] = {
        operation: {name: {} for name in (*contenders.names, "floor", "own floor")} for operation in operations
    }
    disturbed = 0
    for number in range(rounds):
        block = [(number * BLOCK + i) % NUM_BATCHES for i in range(BLOCK)]
        turn = number % len(contenders.names)
        for operation in operations:
            for name in contenders.names[turn:] + contenders.names[:turn]:
                slow = name == "xla"
                if slow and number % SLOW_ROUNDS:
                    continue
                disturbed += not wait_until_idle()
                seconds = contenders.run(name, operation, block[:SLOW_BLOCK] if slow else block)
                times[operation][name][number] = statistics.median(seconds)
        disturbed += not wait_until_idle()
        floor.measure(block, WARM_UP)
        for operation in operations:
            for own in (False, True):
                times[operation]["own floor" if own else "floor"][number] = (
                    floor.lookup(lookups, bags, own)
                    if operation == "lookup"
                    else floor.step(lookups, touched, bags, vectors, len(shapes) - vectors, own)
                )
    contenders.close()
    print(
        f"{workload.name} {optimizer}: {lookups:.0f} lookups, {touched:.0f} touched rows; "
        f"{disturbed} blocks began while something else ran"
    )
    labels = {"lookup": "lookup", "step": optimizer}
    return [Result(workload.name, labels[operation], times[operation]) for operation in operations]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--optimizers", nargs="+", default=list(OPTIMIZERS), choices=OPTIMIZERS)
    parser.add_argument("--rounds", type=int, default=9, help="blocks of each contender")
    parser.add_argument("--no-xla", action="store_true")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    results = []
    for name in options.workloads:
        for optimizer in options.optimizers:
            with_lookup = optimizer == options.optimizers[0]
            results += measure(WORKLOADS[name], optimizer, options.rounds, with_lookup, not options.no_xla)
            print(tables(results[-1 - with_lookup :]), flush=True)
    text = report(results, options.rounds, BLOCK, WARM_UP)
    print(text)
    if not options.no_write:
        (HERE / "results" / "cpu.md").write_text(text)


if __name__ == "__main__":
    main()
