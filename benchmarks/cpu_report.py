"""The results of benchmarks/cpu.py as Markdown."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import platform

import jax
from workloads import WORKLOADS

from sparrow.kernels.native.library import load

COLUMNS = ("native", "xla", "fbgemm", "fbgemm 1t", "fbgemm 2x1", "torch")


@dataclasses.dataclass(frozen=True)
class Result:
    """One workload and operation.

    Attributes:
      workload, operation: which; the operation is "lookup", or an optimizer for the whole step.
      times: the median of each contender, in seconds.
      floor: the seconds that memory alone takes.
      samples: how many runs of ``native`` the median is of.
    """

    workload: str
    operation: str
    times: dict[str, float]
    floor: float
    samples: int


def table(results: list[Result]) -> str:
    """The Markdown table: milliseconds, ratios to the peers, multiples of the floor."""
    header = [
        *COLUMNS,
        *(f"× {name}" for name in COLUMNS[1:]),
        *("floor", "native / floor", "fbgemm / floor"),
    ]
    lines = ["| | " + " | ".join(header) + " |", "|---" * (len(header) + 1) + "|"]
    for result in results:
        times, ours = result.times, result.times["native"]
        cells = [f"{times[name] * 1e3:.2f}" if name in times else "–" for name in COLUMNS]
        cells += [f"{times[name] / ours:.1f}" if name in times else "–" for name in COLUMNS[1:]]
        cells += [f"{result.floor * 1e3:.2f}", f"{ours / result.floor:.2f}"]
        cells += [f"{times['fbgemm'] / result.floor:.1f}" if "fbgemm" in times else "–"]
        lines.append(f"| {result.workload} {result.operation} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def processor() -> str:
    """The processor's name."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
        return next(line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def report(results: list[Result], block: int, warm_up: int) -> str:
    """The whole results file."""
    library = load()
    level = library if isinstance(library, str) else library.level
    sizes = "\n".join(
        f"| {w.name} | {w.tables} × {w.rows:,} | {w.dim} | {w.batch} | {w.ids} |" for w in WORKLOADS.values()
    )
    return f"""# CPU kernels against their peers

Written by `python benchmarks/cpu.py` in one run. The contenders take turns, {block} runs at a time, of which the first
{warm_up} do not count; medians of {min(result.samples for result in results)} runs or more, milliseconds.
{processor()}, {os.cpu_count()} cores, {level}; jax {jax.__version__}; torch 2.13.0, fbgemm-gpu-cpu 1.8.0; float32.
A row named after an optimizer is the whole step: lookup, backward and update.

{table(results)}

* `fbgemm`: as the published wheel ships, with torch's own choice of threads, one per core. Only the sort of its
  backward uses them; the rest runs on one. `fbgemm 1t`: the same tables after `torch.set_num_threads(1)`.
  Its CPU backward knows only SGD, Adagrad and row-wise Adagrad. Its row-wise Adagrad kernel mixes SSE and AVX
  instructions, which makes it crawl on some processors.
* `fbgemm 2x1`: two of its modules with half of the tables each, on two Python threads: equal threads. W3 has one table.
* `torch`: `nn.EmbeddingBag(sparse=True)` with `optim.SGD`, `Adagrad`, `SparseAdam`, two threads. No row-wise forms.
* `native` and `xla` use {os.cpu_count()} threads. `xla` runs in shorter and fewer blocks.
* The floor is the time that the step's reads and writes of memory take at rates measured in the same run, on as many
  threads: random rows gathered, sorted random rows read and written, activations in order (`floor.py`). Rows that stay
  in the cache between steps make a kernel faster than its floor.

| | tables × rows | dim | batch | ids |
|---|---|---|---|---|
{sizes}
"""
