"""python benchmarks/ids.py [--out DIR] [--small]: maps from ids to rows, and rows in host memory, on an NVIDIA GPU.

Checks first (cuda against xla: the same rows, lists and states), then times of `find` and `assign` at 26 tables and at
one large one, of a training step of 1.05M ids, and of rows that move between a cache and host memory. Writes ids.md.
``--cpu``: processor times of the backend native instead. ``--small``: sizes for a trial on the emulation of the tests.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp
import numpy as np
from gpu_workloads import Workload, make_state, make_step

from sparrow import rules
from sparrow.kernels import cuda, ids, native, records
from sparrow.kernels.cuda import ids as on_gpu
from sparrow.kernels.cuda import swap
from sparrow.kernels.types import EntryGradients, Lookups
from tests.kernels.ids.running import counts_by_segment

STEPS = 32  # of a timed call


def draw(key: jax.Array, tables: int, batch: int, vocabulary: int) -> jax.Array:
    """Return (STEPS, tables * batch, 2) uint32: ids whose logarithms are uniform, as hashes."""
    exponent = jax.random.uniform(key, (STEPS, tables * batch))
    rank = jnp.minimum(float(vocabulary) ** exponent, float(vocabulary - 1)).astype(jnp.uint32)
    spread = jax.random.bits(jax.random.fold_in(key, 1), exponent.shape) % jnp.maximum(
        rank >> 22, 1
    )  # float32 has 24 bits
    rank = rank + spread
    return jnp.stack([rank * jnp.uint32(2654435761), rank], -1)


def segments_of(tables: int, batch: int) -> jax.Array:
    return jnp.repeat(jnp.arange(tables, dtype=jnp.int32), batch)


def seconds(run: Callable[[], Any], times: int = 5) -> float:
    """Return the shortest time of some calls."""
    shortest = float("inf")
    for _ in range(times):
        jax.block_until_ready(jnp.zeros(1) + 1)
        began = time.perf_counter()
        jax.block_until_ready(run())
        shortest = min(shortest, time.perf_counter() - began)
    return shortest


def check(small: bool) -> list[str]:
    """Cuda and xla on the same batches."""
    lines = []
    batch = 64 if small else 4096
    rows = batch * 2
    kinds = {
        "lru": {},
        "lfu": {"policy": ids.LFU},
        "lfu, expiring": {"policy": ids.LFU, "expire": 3},
        "none, expiring": {"policy": ids.NONE, "expire": 2},
        "second time": {"admit": 2, "waiting": rows // 2},
        "chance": {"chance": 2**62},
    }
    tables = [ids.Segment(n * rows, (n + 1) * rows, len(kinds) * rows, **kind) for n, kind in enumerate(kinds.values())]
    s = ids.settings(tables, len(kinds) * rows)
    assign = {b.name: jax.jit(functools.partial(b.assign, s), donate_argnums=0) for b in (ids.BACKENDS["xla"], on_gpu)}
    states = {name: ids.init(s) for name in assign}
    keys = draw(jax.random.key(1), len(kinds), batch, 20 * rows)
    segments = segments_of(len(kinds), batch)
    for step in range(6 if small else 24):
        done = {name: assign[name](states[name], keys[step], segments, jnp.int32(step)) for name in assign}
        states = {name: one.state for name, one in done.items()}
        ours, want = ((one.state[:-1], *one[1:]) for one in (done["cuda"], done["xla"]))
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(want), strict=True):
            free_lists = a.shape == states["xla"].free.shape
            if not np.array_equal(a, b) and not free_lists:
                raise SystemExit(f"step {step}: cuda and xla differ in an array of {a.shape}")
        for number, (begin, _) in enumerate(s.pools):
            end = begin + int(states["xla"].pools[number, 0])
            assert np.array_equal(states["cuda"].free[begin:end], states["xla"].free[begin:end])
        rows_found = [b.find(s, states["cuda"], keys[step + 1], segments, step) for b in (ids.BACKENDS["xla"], on_gpu)]
        assert np.array_equal(*rows_found)
    for name, numbers in zip(kinds, counts_by_segment(s, states["cuda"]), strict=True):
        lines.append(f"| {name} | " + " | ".join(str(numbers[key]) for key in numbers) + " |")
    names = list(counts_by_segment(s, states["cuda"])[0])
    return [f"| segment | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|", *lines]


def map_times(tables: int, rows: int, batch: int, vocabulary: int, fill: int) -> str:
    """Measure `find` and `assign`, in microseconds a step."""
    s = ids.settings([ids.Segment(n * rows, (n + 1) * rows, tables * rows) for n in range(tables)], tables * rows)
    segments = segments_of(tables, batch)

    def run(state: ids.IdState, keys: jax.Array, step: jax.Array, kind: str) -> Any:
        def body(at: Any, one: jax.Array) -> Any:
            state, step = at
            if kind == "find":
                found = on_gpu.find(s, state, one, segments, step)
                return (state, step + 1), (found[0], found[0])
            done = on_gpu.assign(s, state, one, segments, step)
            return (done.state, step + 1), (done.fresh.ends[-1], done.gone.ends[-1])

        (state, _), counts = jax.lax.scan(body, (state, step), keys)
        return counts if kind == "find" else (state, counts)

    runs = {
        "find": jax.jit(functools.partial(run, kind="find")),
        "assign": jax.jit(functools.partial(run, kind="assign"), donate_argnums=0),
    }
    state, step, fresh = ids.init(s), 0, []

    def assign(keys: jax.Array) -> Any:
        nonlocal state, step
        state, counts = runs["assign"](state, keys, jnp.int32(step))
        step += STEPS
        return counts

    draws = jax.jit(functools.partial(draw, tables=tables, batch=batch, vocabulary=vocabulary))
    began = time.perf_counter()
    for seed in range(fill):
        counts = jax.block_until_ready(assign(draws(jax.random.key(seed))))
        if seed == 1:
            fresh.append((seconds(lambda: assign(draws(jax.random.key(99))), 1), int(counts[0].mean())))
    filled = time.perf_counter() - began
    used = sum(one["used"] for one in counts_by_segment(s, state))
    turnover, known = [], []
    for seed in range(1000, 1005):
        keys = jax.block_until_ready(draws(jax.random.key(seed)))
        took = seconds(lambda keys=keys: assign(keys), 1)
        turnover.append(took)
    counts = assign(keys)
    evicting = int(assign(draws(jax.random.key(7)))[0].mean())
    lasting = jnp.tile(keys[:1], (STEPS, 1, 1))  # one batch again and again: everything is known
    assign(lasting)
    known = [seconds(lambda: assign(lasting), 1) for _ in range(5)]
    found = seconds(lambda: runs["find"](state, keys, jnp.int32(step)))
    one = functools.partial(_micro, steps=STEPS)
    return (
        f"| {tables} × {rows:,} rows, {tables * batch:,} ids | {one(found)} | {one(min(known))} "
        f"| {one(min(turnover))} ({evicting:,} new and evicted a step) | {used:,} used; filled in {filled:.1f} s |"
    )


def _micro(took: float, steps: int) -> str:
    return f"{took / steps * 1e6:.0f}"


def step_time(count: int, rows: int, dim: int, alpha: float) -> list[str]:
    """One step of Adam with and without the map: ids known, by a power law of exponent ``alpha``, 0: uniform."""
    workload = Workload("ids", 1, rows, dim, count, 1, None)
    row_step, scalars = make_step(rules.Adam(), workload)
    s = ids.settings([ids.Segment(0, rows, rows)], rows)
    segments = jnp.zeros(count, jnp.int32)
    grads = jax.random.normal(jax.random.key(5), (count, dim))
    uniform, most, power = np.random.default_rng(6).random((8, count)), rows * 9 // 10, 1 - alpha
    drawn = np.floor(((most**power - 1) * uniform + 1) ** (1 / power)) - 1 if alpha else uniform * most
    distinct = np.mean([len(np.unique(one)) for one in drawn.astype(np.uint32)])
    ranks = jnp.asarray(np.minimum(drawn, most - 1).astype(np.uint32))
    keys = jnp.stack([ranks * jnp.uint32(2654435761), ranks], -1)
    state = ids.init(s)
    assign = jax.jit(functools.partial(on_gpu.assign, s), donate_argnums=0)
    for start in range(0, rows * 9 // 10, count):
        known = start + jnp.arange(count, dtype=jnp.uint32)
        state = assign(state, jnp.stack([known * jnp.uint32(2654435761), known], -1), segments, jnp.int32(0)).state
    table, slots = make_state(row_step, rows, 0)

    def run(held: Any, dynamic: bool) -> Any:
        def body(held: Any, one: Any) -> Any:
            state, table, slots, step = held
            key, rank = one
            rows_now = rank.astype(jnp.int32)
            if dynamic:
                done = on_gpu.assign(s, state, key, segments, step)
                state, rows_now = done.state, done.rows
            lookups = Lookups(rows_now, None, None, None, count)
            _, lookups = cuda.lookup_and_sort(table, lookups)
            given = EntryGradients(lookups.ids, None, None, grads, lookups.order)
            table, slots = cuda.update(row_step, table, slots, given, scalars)
            return (state, table, slots, step + 1), None

        return jax.lax.scan(body, held, (keys, ranks))[0]

    held = (state, table, slots, jnp.int32(1))
    times = {}
    for dynamic in (False, True, False, True):
        compiled = jax.jit(functools.partial(run, dynamic=dynamic), donate_argnums=0)
        held = jax.block_until_ready(compiled(held))
        best = float("inf")
        for _ in range(5):
            began = time.perf_counter()
            held = jax.block_until_ready(compiled(held))
            best = min(best, time.perf_counter() - began)
        times[dynamic] = min(times.get(dynamic, best), best) / len(keys) * 1e3
    what = f"{count:,} ids, {distinct:,.0f} distinct, dim {dim}, Adam, {rows:,} rows, lookup and update"
    with_map = f"{times[True]:.2f} ms with the map (find and admission included)"
    return [f"{what}: {times[False]:.2f} ms with rows given, {with_map}."]


def swap_times(dim: int, gigabytes: float, count: int, slots: int) -> str:
    """Rows a second between the cache and host memory."""
    arrays = [jnp.zeros((slots, dim)), jnp.zeros(slots)]
    layout = records.layout(arrays)
    rows = int(gigabytes * 1e9) // layout.bytes
    began = time.perf_counter()
    memory = swap.PinnedMemory(rows * layout.bytes)
    pinned = time.perf_counter() - began
    rng = np.random.default_rng(0)
    address = jnp.asarray(memory.address)

    def changed(some: bool) -> ids.Changed:
        at = jnp.asarray(np.sort(rng.choice(slots, count, replace=False)).astype(np.int32))
        which = jnp.asarray(ids.words_of(rng.choice(rows, count, replace=False).astype(np.uint64)))
        return ids.Changed(at, which, jnp.full(1, count if some else 0, jnp.int32))

    both = changed(True)
    lists = {
        "read": (changed(True), changed(False)),
        "stored": (changed(False), changed(True)),
        "both ways": (both, changed(True)._replace(rows=both.rows)),
    }
    repeats = 8
    figures = []
    for fresh, gone in lists.values():

        @functools.partial(jax.jit, donate_argnums=0)
        def run(arrays: Any, fresh: Any, gone: Any) -> Any:
            return jax.lax.scan(
                lambda held, _: (swap.swap(layout, held, address, rows, fresh, gone), None), arrays, None, repeats
            )[0]

        arrays = jax.block_until_ready(run(arrays, fresh, gone))
        best = float("inf")
        for _ in range(4):
            began = time.perf_counter()
            arrays = jax.block_until_ready(run(arrays, fresh, gone))
            best = min(best, time.perf_counter() - began)
        each = best / repeats
        figures.append(f"{count / each / 1e6:.1f}M ({count * layout.bytes / each / 1e9:.1f} GB/s)")
    memory.close()
    return f"| {dim} ({layout.bytes} bytes) | {' | '.join(figures)} | {gigabytes:g} GB pinned in {pinned:.1f} s |"


def on_cpu(tables: int, rows: int, batch: int, dim: int) -> None:
    """Print processor times of `find` and `assign` in C++, in turns with lookup and update of the same ids."""
    backend, count = ids.BACKENDS["native"], tables * batch
    s = ids.settings([ids.Segment(n * rows, (n + 1) * rows, tables * rows) for n in range(tables)], tables * rows)
    row_step, scalars = make_step(rules.RowwiseAdagrad(), Workload("ids", tables, rows, dim, batch, 1, None))
    table, slots = make_state(row_step, tables * rows, 0)
    grads = jax.random.normal(jax.random.key(5), (count, dim))
    segments, state, spent = (
        segments_of(tables, batch),
        ids.init(s),
        {"find": [], "assign": [], "lookup and update": []},
    )

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train(table: jax.Array, slots: Any, found: jax.Array) -> Any:
        acts = native.lookup(table, Lookups(found, None, None, None, count))
        return (*native.update(row_step, table, slots, EntryGradients(found, None, None, grads), scalars), acts[0, 0])

    calls = {name: jax.jit(functools.partial(getattr(backend, name), s)) for name in ("find",)}
    calls["assign"] = jax.jit(functools.partial(backend.assign, s), donate_argnums=0)

    def timed(name: str, call: Callable[[], Any]) -> Any:
        began = time.process_time()
        result = jax.block_until_ready(call())
        spent[name].append(time.process_time() - began)
        return result

    for step in range(60):
        keys = jax.block_until_ready(draw(jax.random.key(step), tables, batch, 4 * rows)[0])
        done = timed("assign", lambda: calls["assign"](state, keys, segments, jnp.int32(step)))  # noqa: B023
        state = done.state
        timed("find", lambda: calls["find"](state, keys, segments, jnp.int32(step)))  # noqa: B023
        table, slots, _ = timed("lookup and update", lambda: train(table, slots, done.rows))  # noqa: B023
        if step % 10 == 9:
            middle = ", ".join(f"{name} {1e3 * np.median(times[-9:]):.1f} ms" for name, times in spent.items())
            print(
                f"step {step}: {middle}; {int(done.fresh.ends[-1])} new, {int(done.gone.ends[-1])} evicted", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="benchmarks/results", help="the folder of ids.md")
    parser.add_argument("--small", action="store_true", help="small sizes")
    parser.add_argument("--cpu", action="store_true", help="processor times of the backend native, and nothing else")
    args = parser.parse_args()
    small = args.small
    if args.cpu:
        on_cpu(26, 100_000, 16384, 64)
        return
    lines = [
        f"# Ids and rows in host memory on {jax.devices()[0].device_kind}",
        "",
        "Microseconds a step; by benchmarks/ids.py.",
        "",
    ]
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)

    def add(*more: str) -> None:
        lines.extend(more)
        print(*more, sep="\n", flush=True)
        (out / "ids.md").write_text("\n".join(lines) + "\n")

    add("## Cuda and xla agree", "", *check(small), "")
    add("## The map", "", "| | find | assign, all known | assign, full table | |", "|---|---|---|---|---|")
    if small:
        add(map_times(2, 200, 64, 2000, 2))
    else:
        add(map_times(26, 1_000_000, 16384, 8_000_000, 40))
        add(map_times(1, 33_000_000, 425_984, 4_000_000_000, 24))
    add("", "## A training step", "", "Ids by a power law of 1.05, as in dynamicemb's own benchmark; then uniform.", "")
    sizes = [(256, 4096, 16, 1.05)] if small else [(2**20, 2**23, 128, 1.05), (2**20, 16_000_000, 128, 0.0)]
    add(*(line for one in sizes for line in (*step_time(*one), "")))
    add("## Host memory, rows a second", "", "| dim | read | stored | both ways | |", "|---|---|---|---|---|")
    for dim in (64,) if small else (32, 64, 120):
        add(swap_times(dim, 0.001 if small else 4.0, 50 if small else 200_000, 100 if small else 1_000_000))


if __name__ == "__main__":
    with contextlib.ExitStack() as stack:
        if "--small" in sys.argv and jax.default_backend() == "cpu":
            from tests.kernels.cuda import emulator

            stack.enter_context(emulator.emulation())
        main()
