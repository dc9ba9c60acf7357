"""Tables in host memory on a GPU: the step with a planned cache beside the step with all rows on the device.

    python benchmarks/host_tables.py                                   # 26 tables x 128, batch 65,536, Zipf 1.05
    python benchmarks/host_tables.py --given 2e8 --batch 2048 --tables 4 --steps 6     # a rehearsal

Rows and slots are three times the device memory given to them (``--given``). Batches are ready: planned, and their rows
gathered into pinned memory; the timed loop sends them, swaps, steps, and stores the rows that leave. Results are lines
of JSON, written as they come.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import itertools
import json
import os
import statistics
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sparrow as sp
from sparrow.embedding import HostTables, Sender, copied, host_blocks, on_host, staged, to_host

DIM = 128
AHEAD = 2
"""Steps whose rows are sent early."""
LOOKAHEAD = 16
"""Steps that the plan sees, as `sparrow.runs` has it."""


class Bench:
    """One set of tables and its batches."""

    def __init__(self, options: argparse.Namespace, rule: Any, row_bytes: int) -> None:
        self.options, self.rule = options, rule
        self.rows = int(options.share * options.given / row_bytes / options.tables)
        self.generator = np.random.default_rng(0)

    def embedder(self, memory: sp.HostMemory | None) -> sp.Embedder:
        """Return the embedder, its tables on the device or not."""
        tables = [
            sp.TableSpec(name=f"t{i}", vocabulary_size=self.rows, embedding_dim=DIM, optimizer=self.rule, memory=memory)
            for i in range(self.options.tables)
        ]
        return sp.Embedder([sp.FeatureSpec(name=table.name, table_spec=table) for table in tables])

    def batches(self, count: int, seed: int) -> list[dict[str, np.ndarray]]:
        """Return inputs, drawn by all cores."""

        def one(number: int) -> dict[str, np.ndarray]:
            generator = np.random.default_rng((seed, number))
            return {f"t{i}": zipf(generator, self.rows, self.options.batch) for i in range(self.options.tables)}

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(one, range(count)))


def zipf(generator: np.random.Generator, rows: int, count: int, exponent: float = 1.05) -> np.ndarray:
    """Return skewed row numbers, scattered over the table."""
    height = (rows ** np.float32(1 - exponent) - 1) * generator.random(count, np.float32) + 1
    ranks = np.minimum((height ** np.float32(1 / (1 - exponent))).astype(np.int64), rows) - 1
    return ((ranks * 2654435761) % rows).astype(np.int32)


def step_of(emb: sp.Embedder) -> Callable[..., Any]:
    """Return the step: lookup, gradients of a small function of the activations, and the fused update."""

    def step(state: Any, batch: Any) -> Any:
        acts, batch = emb.lookup_for_update(state, batch)
        return emb.update(state, batch, {name: x * 1e-3 for name, x in acts.items()})

    return jax.jit(step, donate_argnums=0)


def timed(run: Callable[[Any, int], Any], state: Any, steps: int) -> tuple[Any, float]:
    """Return the state and milliseconds a step: the device is waited for at both ends."""
    jax.block_until_ready(state)
    began = time.perf_counter()
    for number in range(steps):
        state = run(state, number)
    jax.block_until_ready(state)
    return state, 1e3 * (time.perf_counter() - began) / steps


def all_on_device(bench: Bench, inputs: list[Any]) -> list[float]:
    """Return milliseconds a step, several times."""
    emb = bench.embedder(None)
    shapes = jax.eval_shape(emb.init, jax.random.key(0))
    state = jax.tree.map(lambda shape: jnp.full(shape.shape, 0.01, shape.dtype), shapes)
    state = dataclasses.replace(state, step=jnp.zeros((), jnp.int32), seed=jnp.zeros((), jnp.uint32))
    packed, step = [jax.device_put(emb.pack(each)) for each in inputs], step_of(emb)
    state = step(state, packed[0])
    times = []
    for _ in range(3):
        state, took = timed(lambda state, i: step(state, packed[i]), state, len(packed))
        times.append(took)
    return times


class Later(Sender):
    """Buffers that are filled now and sent when a step is near."""

    def send(self, buffer: Any) -> Any:
        """Keep it."""
        return buffer


def sent(host: HostTables, swap: Any) -> Any:
    """Return the swap with its rows on their way to the device."""
    stacks = {
        name: moves._replace(in_values={part: Sender.send(host._sender, x) for part, x in moves.in_values.items()})
        for name, moves in swap.stacks.items()
    }
    return dataclasses.replace(swap, stacks=stacks)


class Loop:
    """Tables in host memory, a warm cache, and steps that are ready."""

    def __init__(self, bench: Bench, cache: float, lookahead: int) -> None:
        self.bench = bench
        self.emb = bench.embedder(sp.HostMemory(cache=cache))
        self.host = self.emb.host_tables(lookahead=lookahead)
        self.host.start()
        self.host._sender = Later(jax.devices()[0])
        for rows in self.host.rows.values():
            for array in rows.arrays.values():
                parts = np.array_split(array, 256)
                with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
                    list(pool.map(lambda part: part.fill(0.01), parts))
        self.state = self.emb.init(jax.random.key(0))
        self.step = step_of(self.emb)
        self.names = list(self.host.stacks)
        self.swaps_only = False

    def ready(self, inputs: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield packed batches on the device, with their swaps."""
        made = (self.emb.pack(each) for each in inputs)
        for packed, swap in staged(self.host, made, lambda p: [{n: p.lookups[n].ids for n in self.names}]):
            yield jax.device_put(dataclasses.replace(packed, planned=True)), swap

    def make(self, steps: Iterator[tuple[Any, Any]], swaps_only: bool = False) -> int:
        """Make steps, or only their swaps; rows are sent AHEAD steps early. Return the number made."""
        self.swaps_only = swaps_only
        near: deque[tuple[Any, Any]] = deque()
        count = 0
        for packed, swap in steps:
            near.append((packed, sent(self.host, swap)))
            if len(near) > AHEAD:
                self._one(*near.popleft())
                count += 1
        while near:
            self._one(*near.popleft())
            count += 1
        return count

    def _one(self, packed: Any, swap: Any) -> None:
        self.state = self.host.advance(self.state, swap)
        if not self.swaps_only:
            self.state = self.step(self.state, packed)


def with_cache(bench: Bench, cache: float, warm: int, report: Callable[..., None], repeats: bool = False) -> None:
    """Time a cache that has seen ``warm`` steps. ``repeats``: the timed batches are the ones it has seen."""
    steps = bench.options.steps
    loop = Loop(bench, cache, lookahead=LOOKAHEAD)
    seen = bench.batches(warm, 1)

    def inputs() -> Iterator[Any]:
        yield from seen
        for attempt in itertools.count(2):
            yield from seen[:steps] if repeats else bench.batches(steps, attempt)

    stream = loop.ready(inputs())  # one plan from the first step to the last, as in a run
    began = time.perf_counter()
    loop.make(itertools.islice(stream, warm))
    jax.block_until_ready(loop.state)
    total = loop.host.total
    report(
        "warmed",
        cache=cache,
        steps=warm,
        ms_with_planning=1e3 * (time.perf_counter() - began) / warm,
        hits=total.hits,
        waited_s=total.waited,
    )
    for attempt in range(2 if repeats else 6):
        swaps_only = attempt == 5  # the part of a step that the cache adds, by itself
        began = time.perf_counter()
        ready = list(itertools.islice(stream, steps))
        staging = 1e3 * (time.perf_counter() - began) / steps
        loop.host.writer.drain()
        jax.block_until_ready([packed for packed, _ in ready])
        before = loop.host.total
        jax.block_until_ready(loop.state)
        began = time.perf_counter()
        loop.make(iter(ready), swaps_only)
        jax.block_until_ready(loop.state)
        took = 1e3 * (time.perf_counter() - began) / steps
        loop.host.writer.drain()
        home = 1e3 * (time.perf_counter() - began) / steps
        work = loop.host.total - before
        report(
            "swaps alone" if swaps_only else "cached",
            cache=cache,
            repeats=repeats,
            ms=took,
            ms_until_home=home,
            staging_ms=staging,
            hits=work.hits,
            unique=work.unique / steps,
            mb_in=work.bytes_in / steps / 1e6,
            mb_out=work.bytes_out / steps / 1e6,
        )
    loop.host.close()


def transfers(report: Callable[..., None]) -> None:
    """Time 128 MB each way, as the caches move rows."""
    sender = Sender(jax.devices()[0])
    buffer = sender.buffer((1 << 18, DIM), np.float32)
    buffer.values[:] = 1.0
    there, back = [], []
    for _ in range(5):
        began = time.perf_counter()
        on_device = jax.block_until_ready(sender.send(buffer))
        there.append(buffer.values.nbytes / (time.perf_counter() - began) / 1e9)
        began = time.perf_counter()
        on_host(to_host(on_device))
        back.append(buffer.values.nbytes / (time.perf_counter() - began) / 1e9)
    report("transfers", to_device_gb_s=max(there), to_host_gb_s=max(back))


def checkpoint(size: float, report: Callable[..., None]) -> None:
    """Time the part of a checkpoint that training waits for: the copy of one large table to host memory."""
    table = jax.block_until_ready(jnp.full((int(size) // (4 * DIM), DIM), 0.5, jnp.float32))
    rows = 1 << ((64 << 20) // (4 * DIM)).bit_length() - 1
    for _ in range(2):
        began = time.perf_counter()
        made = copied(table.shape, table.dtype, (block for _, block in host_blocks(table, 0, len(table), rows)))
        report(
            "checkpoint", gb=table.nbytes / 1e9, waited_s=time.perf_counter() - began, right=bool(made[-1, 0] == 0.5)
        )
        del made


def main() -> None:
    """Parse the options and run; a part that fails is reported, and the others run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--given", type=float, default=6e9, help="bytes of device memory for the tables")
    parser.add_argument("--share", type=float, default=3.0, help="rows and slots, as a multiple of these")
    parser.add_argument("--tables", type=int, default=26)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--steps", type=int, default=16, help="timed steps")
    parser.add_argument("--warm", type=int, default=60)
    parser.add_argument("--checkpoint", type=float, default=20e9, help="bytes of the table whose checkpoint is timed")
    parser.add_argument("--only", nargs="*", default=["transfers", "adagrad", "adam", "full", "checkpoint"])
    parser.add_argument("--out", help="a file for the lines")
    options = parser.parse_args()
    context: dict[str, Any] = {}

    def report(what: str, **numbers: Any) -> None:
        rounded = {name: round(x, 4) if isinstance(x, float) else x for name, x in numbers.items()}
        line = json.dumps({"what": what, **context, **rounded})
        print(line, flush=True)
        if options.out:
            with open(options.out, "a") as file:
                file.write(line + "\n")

    def part(name: str, run: Callable[[], None]) -> None:
        if name in options.only:
            began = time.perf_counter()
            try:
                run()
            except Exception:
                report("failed", part=name, why=traceback.format_exc()[-1500:])
            report("part", part=name, seconds=time.perf_counter() - began)

    def rule(name: str, made: Any, row_bytes: int) -> None:
        bench = Bench(options, made, row_bytes)
        context.update(rule=name, rows=bench.rows, tables=options.tables, batch=options.batch)
        times = all_on_device(bench, bench.batches(options.steps, 0))
        report("all on the device", ms=statistics.median(times), all_ms=[round(x, 3) for x in times])
        with_cache(bench, 1 / options.share, options.warm, report)

    def full() -> None:
        bench = Bench(options, sp.rules.RowwiseAdagrad(0.05), 4 * DIM + 4)
        context.update(rule="row-wise adagrad", rows=bench.rows, tables=options.tables, batch=options.batch)
        with_cache(bench, 1.0, options.steps, report, repeats=True)

    device = jax.devices()[0]
    report("device", kind=device.device_kind, jax=jax.__version__, cores=os.cpu_count(), given_gb=options.given / 1e9)
    part("transfers", lambda: transfers(report))
    part("adagrad", lambda: rule("row-wise adagrad", sp.rules.RowwiseAdagrad(0.05), 4 * DIM + 4))
    part("full", full)
    part("adam", lambda: rule("adam", sp.rules.Adam(0.001), 12 * DIM))
    context.clear()
    part("checkpoint", lambda: checkpoint(options.checkpoint, report))


if __name__ == "__main__":
    main()
