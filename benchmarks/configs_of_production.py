"""Tables as production uses them, trained through configs: dynamic vocabularies and host memory beside plain tables.

    python benchmarks/configs_of_production.py                  # on a CPU: small sizes
    python benchmarks/configs_of_production.py --only plain dynamic evicting --steps 600
    python benchmarks/configs_of_production.py --feed --kind lists --batch 16384
    python benchmarks/configs_of_production.py                  # on a GPU: DCN-v2, batch 16,384, bfloat16

26 features of 64-bit ids, strings or lists (``--kind``) are generated with a few frequent ids and many rare ones, in
memory. Runs of all kinds take turns. Printed: examples per second of the trainer from step ``--from`` on and before it,
by the clock and by processor time, and the bare step on batches that are packed and ready, with static tables; ratios
are of the plain run of the same turn. With ``--feed``: the processor time of the feed alone, of all threads, for each
example.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import statistics
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from sparrow import config as configs
from sparrow import runs
from sparrow.data import Tables
from sparrow.embedding import mix64
from sparrow.runs.loop.loop import Loop
from sparrow.runs.step.step import Steps

FEATURES = 26
NAMES = [f"id_{i}" for i in range(FEATURES)]
RAW = ("dynamic", "evicting")


def columns(kind: str, rows: int, examples: int) -> dict[str, Any]:
    """Return generated columns: numbers below ``rows``, and the same as raw ids."""
    generator = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for number, name in enumerate(NAMES):
        ids = np.minimum(generator.zipf(1.15, examples) - 1, 2**62) % rows
        made[name] = ids
        raw = mix64((ids + number * rows).astype(np.uint64)).view(np.int64)
        if kind == "strings" and number < 4:
            made[f"raw_{name}"] = pa.array(raw).cast(pa.string())
        elif kind == "lists" and number < 4:
            offsets = np.arange(0, examples + 1, dtype=np.int32)
            made[f"raw_{name}"] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(raw))
        else:
            made[f"raw_{name}"] = raw
    made["label"] = (generator.random(examples) < 0.3).astype(np.float32)
    return made


def config(what: str, given: dict[str, Any], options: argparse.Namespace) -> configs.Config:
    """Return the run of one kind: plain, dynamic, evicting (with a tenth of the rows), or host with its cache."""
    features = []
    for name in NAMES:
        if what in RAW:
            rows = options.rows if what == "dynamic" else max(options.rows // 10, 4 * options.batch)
            vocabulary = {"rows": rows, "admit": options.admit, "evict": "lru"}
            features.append({"kind": "id", "name": name, "column": f"raw_{name}", "dynamic": vocabulary})
        else:
            features.append({"kind": "id", "name": name, "num_buckets": options.rows})
        features[-1]["embedding_dim"] = options.dim
    wanted = {f"raw_{name}" if what in RAW else name for name in NAMES} | {"label"}
    source = Tables({name: column for name, column in given.items() if name in wanted}, chunk_rows=options.batch * 4)
    kind, _, cache = what.partition(" ")
    memory = {"tables": [".*"], "memory": {"kind": "host", "cache": float(cache or 1.0)}}
    on_gpu = jax.default_backend() != "cpu"
    architecture: dict[str, Any] = {
        "name": "dcn_v2",
        "cross_num": 3,
        "deep": {"hidden_units": [512]},
        "final": {"hidden_units": [256]},
    }
    if not on_gpu:
        architecture = {
            "name": "dcn_v2",
            "cross_num": 1,
            "deep": {"hidden_units": [64]},
            "final": {"hidden_units": [32]},
        }
    return configs.from_mapping(
        {
            "data": {"train": source, "features": features},
            "model": {
                "architecture": architecture,
                "groups": {"all": NAMES},
                "tables": [memory] if kind == "host" else [],
            },
            "tasks": {"click": {"label": "label", "losses": ["binary_cross_entropy"], "metrics": []}},
            "train": {
                "batch_size": options.batch,
                "steps": options.steps,
                "log_every_steps": options.steps,
                "precision": "bfloat16" if on_gpu else "float32",
                "steps_per_call": options.call,
                "traffic": 0,
                "tensorboard": False,
                "sparse_optimizer": {"name": "rowwise_adagrad", "learning_rate": 0.05},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.001},
            },
        }
    )


class Watch:
    """Notes when the first call of a run is done, and the one that ends at step ``at`` or after it."""

    def __init__(self, at: int) -> None:
        self.at, self.steps, self.times, self._real = at, [], [], Loop._make

    def __enter__(self) -> Watch:
        def make(loop: Any, call: Any) -> None:
            self._real(loop, call)
            if not self.steps or self.steps[-1] < self.at <= loop.steps:
                loop.settle()
                self.note()
                self.steps.append(loop.steps)

        Loop._make = make  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: Any) -> None:
        Loop._make = self._real  # type: ignore[method-assign]

    def note(self) -> None:
        self.times.append((time.perf_counter(), time.process_time()))


def trained(what: str, given: dict[str, Any], options: argparse.Namespace) -> dict[str, float]:
    """Return the speed of a run before and after step ``--from``, without its first step, which compiles."""
    with Watch(options.since) as watch:
        trained = runs.train(config(what, given, options), None, stream=io.StringIO())
        watch.note()
    moved = rows_moved(trained, options.steps)
    del trained
    (begun, used), (middle, used_then), (end, used_at_end) = watch.times
    compiled, since = watch.steps
    first, later = (since - compiled) * options.batch, (options.steps - since) * options.batch
    return {
        "first": first / (middle - begun),
        "later": later / (end - middle),
        "first_by_processor": first / (used_then - used),
        "later_by_processor": later / (used_at_end - used_then),
        **moved,
    }


def rows_moved(trained: Any, steps: int) -> dict[str, float]:
    """Return the ids that got and lost rows, or rows that went to and from a cache, a step."""
    embedding = trained.state.optimizer.embedding
    maps = [*embedding.ids.values(), *(held.slots for held in embedding.caches.values())]
    if not maps:
        return {}
    totals = sum(np.asarray(one.totals[..., 0], np.int64).sum(axis=0) for one in maps) / steps
    return {"in_a_step": float(totals[0]), "out_a_step": float(totals[1])}


def bare(given: dict[str, Any], options: argparse.Namespace) -> float:
    """Return the examples per second of the jitted step with static tables, on batches that are ready."""
    program = runs.Program.of(config("plain", given, options))
    pipeline = configs.train_pipeline(program.config, program.preparer(use="train"))
    batches: Iterator[Any] = iter(pipeline)
    feeds = [(next(batches).feed,) for _ in range(8)]
    step, state, report = Steps(program).one, program.init(), None
    for count in (10, options.bare):
        began = time.perf_counter()
        for number in range(count):
            state, report = step(state, feeds[number % 8], None if report is None else report.go)
        jax.block_until_ready(state)
    batches.close()  # type: ignore[attr-defined]
    return options.bare * options.batch / (time.perf_counter() - began)


def fed(what: str, given: dict[str, Any], options: argparse.Namespace) -> float:
    """Return the processor time of the feed alone, in µs for each example, without its first batches."""
    program = runs.Program.of(config(what, given, options))
    pipeline = configs.train_pipeline(program.config, program.preparer(use="train"))
    examples, used, last = 0, 0.0, None
    for number, prepared in enumerate(pipeline):
        if number == options.since:
            used = time.process_time()
        elif number > options.since:
            examples += prepared.examples
        last = prepared.feed
        if number + 1 == options.steps:
            break
    jax.block_until_ready(last)
    return 1e6 * (time.process_time() - used) / examples


def feeds(given: dict[str, Any], options: argparse.Namespace) -> None:
    """Print the processor time of the feed of each kind, which take turns."""
    found: dict[str, list[float]] = {what: [] for what in options.only}
    for _ in range(options.rounds):
        for what in options.only:
            found[what].append(fed(what, given, options))
    for what, all_runs in found.items():
        line = f"{what}: {statistics.median(all_runs):.3f} µs of processor time"
        if "plain" in found and what != "plain":
            ratio = statistics.median(a / b for a, b in zip(all_runs, found["plain"], strict=True))
            line += f", {ratio:.2f} of plain"
        print(line, flush=True)


def main() -> None:
    """Run all kinds in turns, and print a line for each."""
    on_gpu = jax.default_backend() != "cpu"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=["plain", "dynamic", "host"])
    parser.add_argument(
        "--cache", type=float, nargs="+", default=[0.1], help="shares of the rows on the device, of host"
    )
    parser.add_argument("--kind", choices=["integers", "strings", "lists"], default="integers")
    parser.add_argument("--batch", type=int, default=16_384 if on_gpu else 2_048)
    parser.add_argument("--rows", type=int, default=1_000_000 if on_gpu else 20_000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--admit", type=float, default=1)
    parser.add_argument("--steps", type=int, default=1000 if on_gpu else 120)
    parser.add_argument("--from", dest="since", type=int, default=200 if on_gpu else 40)
    parser.add_argument("--call", type=int, help="steps of a call of the trainer, which chooses; the bare step has one")
    parser.add_argument("--bare", type=int, default=100 if on_gpu else 20, help="bare steps; 0: none are measured")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--feed", action="store_true", help="measure the feed alone")
    options = parser.parse_args()
    hosts = [f"host {cache:g}" for cache in options.cache]
    options.only = [name for what in options.only for name in (hosts if what == "host" else [what])]
    options.admit = int(options.admit) if options.admit >= 1 else options.admit
    given = columns(options.kind, options.rows, options.batch * (64 if on_gpu else 32))
    if options.feed:
        feeds(given, options)
        return
    found: dict[str, list[dict[str, float]]] = {what: [] for what in options.only}
    steps = []
    for _ in range(options.rounds):
        if options.bare:
            steps.append(bare(given, options))
        for what in options.only:
            found[what].append(trained(what, given, options))
            print(what, json.dumps({name: round(value) for name, value in found[what][-1].items()}), flush=True)
    middle = statistics.median(steps or [math.nan])
    print(f"bare step with static tables: {middle:,.0f} examples/s")
    for what, all_runs in found.items():
        of = {name: statistics.median(one[name] for one in all_runs) for name in all_runs[0]}
        line = (
            f"{what}: {of['later']:,.0f} from step {options.since} on ({of['later'] / middle:.0%} of the bare step), "
        )
        line += f"{of['first']:,.0f} before"
        if "plain" in found and what != "plain":
            plain = found["plain"]
            for name in ("later", "later_by_processor"):
                ratio = statistics.median(a[name] / b[name] for a, b in zip(all_runs, plain, strict=True))
                line += f"; {name}: {ratio:.0%} of plain"
        print(line)


if __name__ == "__main__":
    main()
