"""Ids a second on one core: the planner of caches, and the id map beside other ways to find the rows of 64-bit ids.

    python benchmarks/host.py                    # 10M ids, batches of 1M: writes its part of benchmarks/results/host.md
    python benchmarks/host.py --ids 1e6 --only ids --no-write
    python benchmarks/host.py --only plan        # 26 tables, 30M rows in all

Rates are by the CPU time of the thread, so that other work on the machine counts less; caches are still shared.
The peers run in turns with the id map, in the environment of ``make bench-peers`` with pandas besides, or in that of
``--peer-python``; without it they are left out.
"""

from __future__ import annotations

import argparse
import itertools
import os
import pathlib
import subprocess
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import numpy.typing as npt
from host_ids import U64, ids_and_batches, zipf

HERE = pathlib.Path(__file__).parent
NEW = 20
"""One id in NEW is new where the table is full and rows are evicted."""
BEGIN, END = "## One core: `python benchmarks/host.py`\n", "\n## "
Way = Callable[[str, int], float]
"""Seconds of processor time for one batch, given its kind and number."""


def timed(run: Callable[[U64], object], batches: dict[str, list[U64]]) -> Way:
    def once(kind: str, number: int) -> float:
        began = time.thread_time()
        run(batches[kind][number])
        return time.thread_time() - began

    return once


def ours(known: U64, batches: dict[str, list[U64]]) -> dict[str, Way]:
    """Return the uses of the id map: find, train with a journal; it holds all ids."""
    from sparrow.embedding.dynamic.id_map import Settings, id_map

    made = id_map(Settings(len(known)))
    size = len(batches["uniform"][0])
    for step, start in enumerate(range(0, len(known), size)):
        made.train(known[start : start + size], step)
        made.forget(step)
    steps = itertools.count(len(known) // size + 1)

    def train(batch: U64) -> None:
        step = next(steps)
        made.train(batch, step)
        made.forget(step - 2)  # two batches ahead of the steps

    fresh = itertools.count(1)

    changed: dict[str, list[U64]] = {kind: [batch.copy() for batch in given] for kind, given in batches.items()}

    def with_new(kind: str, number: int) -> float:
        batch = changed[kind][number]
        batch[::NEW] = np.arange(len(batch[::NEW]), dtype=np.uint64) + np.uint64(next(fresh) << 40)
        return timed(train, changed)(kind, number)

    return {
        "Sparrow, find": timed(lambda batch: made.find(batch, 0), batches),
        "Sparrow, train: known ids, with a journal": timed(train, batches),
        f"Sparrow, train: {100 // NEW} % new, full, LRU": with_new,
    }


class Peers:
    """The process of benchmarks/host_ids.py."""

    def __init__(self, python: str, ids: int, size: int) -> None:
        command = [python, str(HERE / "host_ids.py"), str(ids), str(size)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.versions, *self.names = self._process.stdout.readline().rstrip("\n").split("\t")

    def way(self, name: str) -> Way:
        def once(kind: str, number: int) -> float:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(f"{name}\t{kind}\t{number}\n")
            self._process.stdin.flush()
            return float(self._process.stdout.readline())

        return once

    def close(self) -> None:
        self._process.communicate()


def compare(ids: int, size: int, rounds: int, python: str) -> str:
    """Return the rates of all ways, in turns, as a table."""
    peers = Peers(python, ids, size) if pathlib.Path(python).exists() else None
    known, batches = ids_and_batches(ids, size)
    ways = ours(known, batches)
    new = [name for name in ways if "new" in name]  # they evict known ids: last
    others = {} if peers is None else {name: peers.way(name) for name in peers.names}
    rates: dict[tuple[str, str], list[float]] = {}
    for group in ({name: way for name, way in ways.items() if name not in new} | others, {n: ways[n] for n in new}):
        for number in range(rounds):
            for kind, given in batches.items():
                for name, way in group.items():
                    seconds = way(kind, number % len(given))
                    if number:  # the first round warms up
                        rates.setdefault((name, kind), []).append(size / seconds / 1e6)
    if peers is not None:
        peers.close()
    lines = [
        f"The id map at {len(known):,} ids, batches of {size:,}; million ids a second of processor time, best (median) "
        f"of {rounds - 1}"
        + (", in turns." if peers is None else f", in turns with {peers.versions} on one thread each.")
        + f" Load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.",
        "",
        "| | uniform | Zipf 1.05 |",
        "|---|---:|---:|",
    ]
    for name in [*ways, *others]:
        both = [rates[name, kind] for kind in batches]
        cells = " | ".join(f"{max(given):.1f} ({float(np.median(given)):.1f})" for given in both)
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)


def plan(rows: int, tables: int = 26, count: int = 1_700_000, steps: int = 24) -> str:
    """Time the planner: mark the rows of a step, give them slots, renumber its ids."""
    head = f"The planner of caches, {tables} tables of {rows:,} rows in all, steps of {count:,} ids (Zipf 1.05),"
    lines = [f"{head} by processor time of the thread:", ""]
    import sparrow as sp
    from sparrow.embedding.host.planner import planner
    from sparrow.embedding.stacking import cache_of, stack_tables

    generator, each = np.random.default_rng(0), rows // tables
    starts = (np.arange(count) % tables * each).astype(np.int32)  # one id of each table, example by example
    for cache in (0.05, 0.2):
        specs = [
            sp.TableSpec(
                name=f"t{i}",
                vocabulary_size=each,
                embedding_dim=128,
                optimizer=sp.rules.SGD(0.1),
                memory=sp.HostMemory(cache=cache),
            )
            for i in range(tables)
        ]
        (logical,) = stack_tables(specs)
        made, seconds, coming, unique = planner(logical, cache_of(logical)), [], 0, 0
        window: list[npt.NDArray[np.int32]] = []
        for step in range(steps):
            ids = (zipf(generator, each, count) * 2654435761 % each).astype(np.int32) + starts
            began = time.thread_time()
            made.begin(step)
            made.see(ids, range(tables))
            if any(made.needed(table) > cache * each for table in range(tables)):
                raise SystemExit(f"a cache of {cache:.0%} is smaller than one step: give --rows more")
            window.append(ids)
            if step >= 4:
                oldest = window.pop(0)
                coming = sum(len(made.admit(table).in_rows) for table in range(tables))
                made.slots(oldest)
                made.end()
                seconds.append(time.thread_time() - began)
            unique = sum(made.needed(table) for table in range(tables))
        best, median = count / min(seconds) / 1e6, count / float(np.median(seconds)) / 1e6
        lines.append(
            f"* cache of {cache:.0%}: {best:.1f} M ids/s, median {median:.1f}; {unique:,} rows a step, {coming:,} of "
            "which come in the last one"
        )
    return "\n".join(lines)


def rows(count: int, moved: int, rounds: int) -> str:
    """Return the rates at which rows with Adam's slots are gathered and stored, beside one large copy."""
    import sparrow as sp
    from sparrow.embedding.host.rows import HostRows
    from sparrow.embedding.stacking import stack_tables

    table = sp.TableSpec(
        name="t", vocabulary_size=count, embedding_dim=128, optimizer=sp.rules.Adam(0.1), memory=sp.HostMemory()
    )
    (stack,) = stack_tables([table])
    made, generator = HostRows(stack, threads=1), np.random.default_rng(0)
    for array in made.arrays.values():
        array[...] = 1
    buffers = {name: np.ones((moved, 128), np.float32) for name in made.arrays}
    first = next(iter(made.arrays.values()))[:moved]
    seconds: dict[str, list[float]] = {}
    for _ in range(rounds):
        chosen = generator.choice(count, moved, replace=False).astype(np.int32)
        for name, run in (
            ("gathering", lambda: made.gather(chosen, buffers)),  # noqa: B023
            ("storing", lambda: made.scatter(chosen, buffers)),  # noqa: B023
            ("one copy", lambda: [np.copyto(first, buffer) for buffer in buffers.values()]),
        ):
            generator.random(6 << 20)  # other memory in the caches
            began = time.thread_time()
            run()
            seconds.setdefault(name, []).append(time.thread_time() - began)
    nbytes = sum(buffer.nbytes for buffer in buffers.values())
    rates = [
        f"{name} {nbytes / min(own) / 1e9:.1f} ({nbytes / float(np.median(own)) / 1e9:.1f})"
        for name, own in seconds.items()
    ]
    return (
        f"{moved:,} random rows of {count:,}, dim 128, with Adam's slots; GB/s of processor time of one thread, best "
        f"(median) of {rounds}: {', '.join(rates)}. Load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
    )


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=float, default=1e7, help="distinct ids that are known")
    parser.add_argument("--batch", type=float, default=1e6, help="ids in a batch")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=("ids", "plan", "rows"))
    parser.add_argument("--rows", type=float, default=3e7, help="rows of the tables whose caches are planned")
    parser.add_argument("--peer-python", default=str(HERE.parent / ".venv-peers" / "bin" / "python"))
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    parts = []
    if options.only in (None, "plan"):
        parts.append(plan(int(options.rows)))
        print(parts[-1], flush=True)
    if options.only in (None, "rows"):
        parts.append(rows(600_000, 40_000, options.rounds))
        print(parts[-1], flush=True)
    if options.only in (None, "ids"):
        parts.append(compare(int(options.ids), int(options.batch), options.rounds, options.peer_python))
        print(parts[-1], flush=True)
    if options.only is None and not options.no_write:
        file = HERE / "results" / "host.md"
        before, _, rest = file.read_text().partition(BEGIN)
        _, mark, after = rest.partition(END)
        file.write_text(before + BEGIN + "\n" + "\n\n".join(parts) + "\n" + mark + after)


if __name__ == "__main__":
    main()
