"""CPU kernels against their peers: one run, interleaved, medians.

    python benchmarks/cpu.py                    # all workloads and optimizers; writes benchmarks/results/cpu.md
    python benchmarks/cpu.py --workloads W1 --optimizers SGD --rounds 20 --no-write

The peers (FBGEMM, PyTorch) run in their own environment, made by ``make bench-peers``; without it they are left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from floor import Floor
from workloads import NUM_BATCHES, WORKLOADS, Batch, Workload, batches

from sparrow import rules
from sparrow.kernels import Backend, Lookups, RowGradients, RowStep, StepScalars, native, xla
from sparrow.kernels.native.library import load

HERE = pathlib.Path(__file__).parent
PEERS_PYTHON = HERE.parent / ".venv-peers" / "bin" / "python"
OPTIMIZERS = ("SGD", "Adagrad", "RowwiseAdagrad", "Adam", "PartialRowwiseAdam")
PEERS = {
    "SGD": ("fbgemm", "fbgemm 2x1", "torch"),
    "Adagrad": ("fbgemm", "torch"),
    "RowwiseAdagrad": ("fbgemm",),
    "Adam": ("torch",),
    "PartialRowwiseAdam": (),
}
OURS: dict[str, Backend] = {"native": native, "xla": xla}


class Ours:
    """Sparrow's kernels on one state: both backends update it in turn."""

    def __init__(self, workload: Workload, optimizer: str, data: list[Batch]) -> None:
        rule = getattr(rules, optimizer)(learning_rate=0.01)
        hyper = rule.hyper(jnp.zeros((), jnp.int32))
        slots = tuple((name, slot.layout) for name, slot in rule.slots.items())
        self.step_of_row = RowStep(rule.without_numbers(), slots, tuple(hyper), workload.dim, "float32")
        rows = workload.tables * workload.rows
        self.table = jnp.full((rows, workload.dim), 0.01, jnp.float32)
        self.slots = tuple(
            jnp.full((rows, *shape), rule.slot_init(name), jnp.float32)
            for (name, _), shape in zip(slots, self.step_of_row.slot_shapes, strict=True)
        )
        self.scalars = StepScalars(
            hyper=jnp.asarray([[float(value) for value in hyper.values()]] * workload.tables, jnp.float32),
            seeds=jnp.zeros(workload.tables, jnp.uint32),
            first_rows=jnp.arange(workload.tables, dtype=jnp.int32) * workload.rows,
        )
        self.inputs = [_lookups(workload, batch, data) for batch in data]
        self.grads = jnp.asarray(
            np.random.default_rng(0).normal(size=(workload.tables * workload.batch, workload.dim)) * 1e-3, jnp.float32
        )
        self.compiled: dict[tuple[str, str], Callable[..., Any]] = {}
        for name, backend in OURS.items():
            self.compiled[name, "lookup"] = jax.jit(backend.lookup)
            self.compiled[name, "step"] = jax.jit(self._step(backend), donate_argnums=(0, 1))

    def _step(self, backend: Backend) -> Callable[..., Any]:
        def step(table: jax.Array, slots: Any, lookups: Lookups, grads: jax.Array, scalars: StepScalars) -> Any:
            activations = backend.lookup(table, lookups)
            # As in training, the update comes after the activations: here one number of it depends on them.
            is_nan = jnp.isnan(activations[0, 0]).astype(jnp.uint32)
            row_grads = RowGradients(lookups.ids, lookups.bags, lookups.gains, grads)
            scalars = scalars._replace(seeds=scalars.seeds + is_nan)
            return activations, backend.update(self.step_of_row, table, slots, row_grads, scalars)

        return step

    def run(self, name: str, operation: str, batch: int) -> float:
        """Seconds of one run."""
        run = self.compiled[name, operation]
        started = time.perf_counter()
        if operation == "lookup":
            jax.block_until_ready(run(self.table, self.inputs[batch]))
        else:
            result = run(self.table, self.slots, self.inputs[batch], self.grads, self.scalars)
            _, (self.table, self.slots) = jax.block_until_ready(result)
        return time.perf_counter() - started


def _lookups(workload: Workload, batch: Batch, data: list[Batch]) -> Lookups:
    """The batch in the stacked table, padded so that all batches have one shape."""
    size = max(sum(map(len, other.ids)) for other in data)
    ids = np.full(size, workload.tables * workload.rows, np.int32)
    flat = np.concatenate([ids + i * workload.rows for i, ids in enumerate(batch.ids)])
    ids[: len(flat)] = flat
    num_bags = workload.tables * workload.batch
    if workload.bag == (1, 1):
        return Lookups(jnp.asarray(ids), None, None, None, num_bags)
    lengths = np.concatenate([np.diff(offsets) for offsets in batch.offsets])
    bags = np.full(size, num_bags, np.int32)
    bags[: len(flat)] = np.repeat(np.arange(num_bags, dtype=np.int32), lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return Lookups(jnp.asarray(ids), jnp.asarray(bags), jnp.asarray(offsets), None, num_bags)


class Peer:
    """A peer in a process of its own, which times itself."""

    def __init__(self, workload: str, kind: str, optimizer: str) -> None:
        environment = os.environ | {"KMP_BLOCKTIME": "0", "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(
            [str(PEERS_PYTHON), str(HERE / "cpu_peers.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.order(make=[workload, kind, optimizer])

    def order(self, **order: Any) -> dict[str, Any]:
        """Sends one order and waits for its answer."""
        sent, received = self.process.stdin, self.process.stdout
        assert sent is not None
        assert received is not None
        sent.write(json.dumps(order) + "\n")
        sent.flush()
        answer: dict[str, Any] = json.loads(received.readline())
        if "error" in answer:
            raise RuntimeError(f"the peer failed at {order}: {answer['error']}")
        return answer

    def run(self, operation: str, batch: int) -> float:
        """Seconds of one run."""
        return float(self.order(run=operation, batch=batch)["seconds"])

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@dataclasses.dataclass
class Result:
    """Medians of one workload and operation, in seconds."""

    workload: str
    operation: str
    times: dict[str, float]
    floor: float


def measure(workload: Workload, optimizer: str, rounds: int, with_lookup: bool, with_xla: bool) -> list[Result]:
    """All contenders on one workload and optimizer, run in turn, round after round."""
    data = batches(workload)
    ours = Ours(workload, optimizer, data)
    kinds = PEERS[optimizer] if PEERS_PYTHON.exists() else ()
    if workload.tables == 1:
        kinds = tuple(kind for kind in kinds if kind != "fbgemm 2x1")  # one table cannot be halved
    peers = {kind: Peer(workload.name, kind, optimizer) for kind in kinds}
    library = load()
    level = library if isinstance(library, str) else library.level
    floor = Floor(workload.tables * workload.rows, workload.dim, threads=os.cpu_count() or 1, level=level)
    operations = ("lookup", "step") if with_lookup else ("step",)
    names = [name for name in OURS if with_xla or name != "xla"]
    times: dict[tuple[str, str], list[float]] = {}
    for round_number in range(rounds + 2):
        for operation in operations:
            for name in (*names, *peers):
                if name == "xla" and round_number % 4:
                    continue  # slow, and no bar to reach
                batch = round_number % NUM_BATCHES
                seconds = ours.run(name, operation, batch) if name in OURS else peers[name].run(operation, batch)
                if round_number >= 2 or name == "xla":
                    times.setdefault((operation, name), []).append(seconds)
        floor.measure()
    for peer in peers.values():
        peer.close()

    lookups = statistics.mean(sum(map(len, batch.ids)) for batch in data)
    touched = statistics.mean(sum(len(np.unique(ids)) for ids in batch.ids) for batch in data)
    bags = workload.tables * workload.batch
    shapes = ours.step_of_row.slot_shapes
    vectors = sum(shape != () for shape in shapes)
    floors = {
        "lookup": floor.lookup(lookups, bags),
        "step": floor.step(lookups, touched, bags, vectors, len(shapes) - vectors),
    }
    print(
        f"{workload.name} {optimizer}: {lookups:.0f} lookups, {touched:.0f} touched rows; ns per row: "
        f"gather {floor.rate('gather') * 1e9:.1f}, modify {floor.rate('modify') * 1e9:.1f}, "
        f"number {floor.rate('line') * 1e9:.1f}; stream {1e-9 / floor.rate('stream'):.1f} GB/s"
    )
    results = []
    for operation in operations:
        label = "lookup" if operation == "lookup" else optimizer
        medians = {
            name: statistics.median(samples) for (op, name), samples in times.items() if op == operation and samples
        }
        results.append(Result(workload.name, label, medians, floors[operation]))
    return results


COLUMNS = ("native", "xla", "fbgemm", "fbgemm 2x1", "torch")


def table(results: list[Result]) -> str:
    """The Markdown table: milliseconds, ratios to the peers, multiple of the floor."""
    lines = [
        "| | " + " | ".join(COLUMNS) + " | × xla | × fbgemm | × fbgemm 2x1 | × torch | floor | native / floor |",
        "|---" * (len(COLUMNS) + 7) + "|",
    ]
    for result in results:
        ours = result.times["native"]
        cells = [f"{result.times[name] * 1e3:.2f}" if name in result.times else "–" for name in COLUMNS]
        ratios = [f"{result.times[name] / ours:.1f}" if name in result.times else "–" for name in COLUMNS[1:]]
        tail = [f"{result.floor * 1e3:.2f}", f"{ours / result.floor:.2f}"]
        lines.append(f"| {result.workload} {result.operation} | " + " | ".join([*cells, *ratios, *tail]) + " |")
    return "\n".join(lines)


def processor() -> str:
    """The processor's name."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
        return next(line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def report(results: list[Result], rounds: int) -> str:
    """The whole results file."""
    library = load()
    level = library if isinstance(library, str) else library.level
    sizes = "\n".join(
        f"| {w.name} | {w.tables} × {w.rows:,} | {w.dim} | {w.batch} | {w.ids} |" for w in WORKLOADS.values()
    )
    return f"""# CPU kernels against their peers

Written by `python benchmarks/cpu.py`. One run, all contenders in turn, medians of {rounds} rounds, milliseconds.
{processor()}, {os.cpu_count()} cores, {level}; jax {jax.__version__}; torch 2.13.0, fbgemm-gpu-cpu 1.8.0; float32.
A row named after an optimizer is the whole step: lookup, backward and update.

{table(results)}

* `fbgemm`: as the published wheel ships, effectively one thread. Its CPU backward knows only SGD, Adagrad and row-wise
  Adagrad; its row-wise Adagrad kernel mixes SSE and AVX instructions and crawls on some processors, so that SGD and
  Adagrad are the clean comparisons.
* `fbgemm 2x1`: two of its modules with half of the tables each, on two Python threads: equal threads. W3 has one table.
* `torch`: `nn.EmbeddingBag(sparse=True)` with `optim.SGD`, `Adagrad`, `SparseAdam`, two threads. No row-wise forms.
* `native` and `xla` use {os.cpu_count()} threads. `xla` is timed in every fourth round.
* The floor is the time that the step's reads and writes of memory take at rates measured in the same run, on as many
  threads: random rows gathered, sorted random rows read and written, activations in order (`floor.py`). Rows that stay
  in the cache between steps make a kernel faster than its floor.

| | tables × rows | dim | batch | ids |
|---|---|---|---|---|
{sizes}
"""


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--optimizers", nargs="+", default=list(OPTIMIZERS), choices=OPTIMIZERS)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--no-xla", action="store_true")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    results = []
    for name in options.workloads:
        for optimizer in options.optimizers:
            with_lookup = optimizer == options.optimizers[0]
            results += measure(WORKLOADS[name], optimizer, options.rounds, with_lookup, not options.no_xla)
            print(table(results[-2:]), flush=True)
    text = report(results, options.rounds)
    print(text)
    if not options.no_write:
        (HERE / "results" / "cpu.md").write_text(text)


if __name__ == "__main__":
    main()
