"""The results of benchmarks/cpu.py as Markdown."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import platform
import statistics

import jax
from workloads import BLOCK_SECONDS, WORKLOADS

from sparrow.kernels.native.library import load

COLUMNS = ("native", "xla", "fbgemm", "fbgemm 1t", "fbgemm 2x1", "torch", "floor", "own floor")
RATIOS = (
    *((name, "native") for name in COLUMNS[1:6]),
    *((name, floor) for name in ("native", "fbgemm") for floor in ("floor", "own floor")),
)


@dataclasses.dataclass(frozen=True)
class Result:
    """One workload and operation.

    Attributes:
      workload, operation: their names; the operation is "lookup", or an optimizer for the complete step.
      rounds: for each of `COLUMNS` that took part, the seconds in each round: the median of its block; for the
        floors see floor.py.
    """

    workload: str
    operation: str
    rounds: dict[str, dict[int, float]]

    def seconds(self, name: str) -> float | None:
        """Return the median over the rounds; None: it did not take part."""
        return statistics.median(self.rounds[name].values()) if name in self.rounds else None

    def ratio(self, name: str, to: str) -> float | None:
        """Return the ratio to ``to``: the median of the rounds' ratios, because a complete round may be slow."""
        if not {name, to} <= self.rounds.keys():
            return None
        mine, other = self.rounds[name], self.rounds[to]
        return statistics.median(mine[i] / other[i] for i in mine.keys() & other.keys())


def tables(results: list[Result]) -> str:
    """Return two Markdown tables: milliseconds; multiples of ``native`` and of the floor."""
    times = [["ms", *COLUMNS]]
    ratios = [["times", *(f"{name} / {to}" for name, to in RATIOS)]]
    for result in results:
        label = f"{result.workload} {result.operation}"
        times.append([label, *(_number(result.seconds(name), 1e-3) for name in COLUMNS)])
        ratios.append([label, *(_number(result.ratio(name, to), 1, 1 if to == "native" else 2) for name, to in RATIOS)])
    return "\n\n".join(map(_markdown, (times, ratios)))


def _number(value: float | None, unit: float, digits: int = 2) -> str:
    return "–" if value is None else f"{value / unit:.{digits}f}"


def _markdown(rows: list[list[str]]) -> str:
    header, *body = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([header, "|---" * len(rows[0]) + "|", *body])


def processor() -> str:
    """Return the processor's name."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
        return next(line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def report(results: list[Result], rounds: int, block: int, warm_up: float) -> str:
    """Return the content of the results file."""
    library = load()
    level = library if isinstance(library, str) else library.level
    sizes = "\n".join(
        f"| {w.name} | {w.tables} × {w.rows:,} | {w.dim} | {w.batch} | {w.ids} |" for w in WORKLOADS.values()
    )
    return f"""# CPU kernels against their peers

Written by `python benchmarks/cpu.py` in one run of {rounds} rounds. In a round the contenders take turns: {warm_up} s
of runs that do not count, then {block} runs, and more until {BLOCK_SECONDS} s have passed. A time is the median of the
rounds' medians, in milliseconds; a ratio is the median of the rounds' ratios, because on a shared machine some rounds
are slow for all.
{processor()}, {os.cpu_count()} cores, {level}; jax {jax.__version__}; torch 2.13.0, fbgemm-gpu-cpu 1.8.0; float32.
A row named after an optimizer is the whole step: lookup, backward and update.

{tables(results)}

* `fbgemm`: as the published wheel ships, with torch's own choice of threads, one per core. Only the sort of its
  backward uses them; the rest runs on one. `fbgemm 1t`: the same tables after `torch.set_num_threads(1)`.
  Its CPU backward knows only SGD, Adagrad and row-wise Adagrad. Its row-wise Adagrad kernel mixes SSE and AVX
  instructions, which makes it crawl on some processors.
* `fbgemm 2x1`: two of its modules with half of the tables each, on two Python threads: equal threads. W3 has one table.
* `torch`: `nn.EmbeddingBag(sparse=True)` with `optim.SGD`, `Adagrad`, `SparseAdam`, two threads. No row-wise forms.
* `native` and `xla` use {os.cpu_count()} threads. `xla` runs in shorter and fewer blocks.
* The floor is the time that the step's reads and writes of memory take at rates measured in the same run, on as many
  threads: random rows gathered, sorted random rows read and written, activations in order (`floor.py`). Rows that stay
  in the cache between steps make a kernel faster than this floor. The own floor has the workload's own rows instead
  of random ones, and so has the cache too. `fbgemm / floor` is how many times faster than FBGEMM a kernel exactly at
  the floor would be.

| | tables × rows | dim | batch | ids |
|---|---|---|---|---|
{sizes}
"""
