"""The cost of histories: a step of tables with 26 single ids, with and without four ordered histories of up to 200.

Both steps look up, take given gradients, and update with row-wise Adagrad; no model runs between, so the difference is
the histories' own. Each history shares the table of one single id, as items seen share that of the candidate.

    python benchmarks/histories.py                       # on the device that JAX finds
    python benchmarks/histories.py --batch 256 --rows 20000 --dim 16

Bytes of a step, float32: a looked-up row is read and its activation written, the activation's gradient is read, and a
touched row is read and written with its accumulator. The target: the time with histories over the time without them is
at most twice the same ratio of bytes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import sparrow as sp

SINGLES, HISTORIES, BATCHES = 26, 4, 4
FLOAT = 4


class Size(NamedTuple):
    """The size of the work."""

    batch: int
    rows: int
    dim: int
    length: int


def bytes_of(ids: dict[str, list[np.ndarray]], dim: int) -> int:
    """Return the bytes of rows, activations and gradients of a step; ``ids``: of each table, one array per feature.

    >>> bytes_of({"items": [np.array([3, 3]), np.array([4])]}, dim=8)
    432
    """
    looked_up = sum(len(array) for arrays in ids.values() for array in arrays)
    touched = sum(len(np.unique(np.concatenate(arrays))) for arrays in ids.values())
    return FLOAT * (3 * looked_up * dim + touched * 2 * (dim + 1))


def draw(size: Size, rng: np.random.Generator) -> dict[str, Any]:
    """Return the ids of a batch: most histories are shorter than the longest, and some are empty."""
    skewed = size.rows * rng.random((SINGLES, size.batch)) ** 3
    made: dict[str, Any] = {f"id{i}": skewed[i].astype(np.int32) for i in range(SINGLES)}
    for i in range(HISTORIES):
        offsets = np.concatenate([[0], np.cumsum(rng.integers(0, size.length + 1, size.batch))])
        values = (size.rows * rng.random(offsets[-1]) ** 3).astype(np.int32)
        made[f"seen{i}"] = sp.Ragged(values, offsets)
    return made


class Work:
    """Steps over the same batches, with the histories or without them."""

    def __init__(self, size: Size, inputs: list[dict[str, Any]], with_histories: bool) -> None:
        rule = sp.rules.RowwiseAdagrad(learning_rate=0.01)
        tables = [
            sp.TableSpec(name=f"table{i}", vocabulary_size=size.rows, embedding_dim=size.dim, optimizer=rule)
            for i in range(SINGLES)
        ]
        features = [sp.FeatureSpec(name=f"id{i}", table_spec=table) for i, table in enumerate(tables)]
        if with_histories:
            features += [sp.FeatureSpec(name=f"seen{i}", table_spec=tables[i], combiner=None) for i in range(HISTORIES)]
        self.embedder = sp.Embedder(features)
        names = [feature.name for feature in features]
        chosen = [{name: given[name] for name in names} for given in inputs]
        self.batches = [self.embedder.pack(given) for given in chosen]
        self.bytes = statistics.mean(bytes_of(_by_table(given), size.dim) for given in chosen)
        self.state = self.embedder.init(jax.random.key(0))
        self.samples: list[float] = []

        def step(state: Any, batch: Any) -> Any:
            acts = self.embedder.lookup(state, batch)
            return self.embedder.update(state, batch, jax.tree.map(lambda act: 1e-3 * jnp.sign(act), acts))

        self.step: Callable[..., Any] = jax.jit(step, donate_argnums=0)

    def run(self, steps: int) -> float:
        """Return the milliseconds of one step, a mean of ``steps``."""
        begin = time.perf_counter()
        for i in range(steps):
            self.state = self.step(self.state, self.batches[i % BATCHES])
        jax.block_until_ready(self.state)
        return (time.perf_counter() - begin) / steps * 1e3


def _by_table(given: dict[str, Any]) -> dict[str, list[np.ndarray]]:
    ids: dict[str, list[np.ndarray]] = {}
    for name, values in given.items():
        table = name.removeprefix("id").removeprefix("seen")
        ids.setdefault(table, []).append(values.values if isinstance(values, sp.Ragged) else values)
    return ids


def measure(size: Size, rounds: int, steps: int) -> tuple[Work, Work]:
    """Return the work without and with histories, with their samples; rounds take turns."""
    rng = np.random.default_rng(0)
    inputs = [draw(size, rng) for _ in range(BATCHES)]
    both = Work(size, inputs, False), Work(size, inputs, True)
    for work in both:
        work.run(BATCHES)  # compiles
    for _ in range(rounds):
        for work in both:
            work.samples.append(work.run(steps))
    return both


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--rows", type=int, default=100_000, help="of each table")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--length", type=int, default=200, help="of the longest history")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20, help="of a round")
    options = parser.parse_args()
    size = Size(options.batch, options.rows, options.dim, options.length)
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, {size}")
    plain, ordered = measure(size, options.rounds, options.steps)
    for name, work in (("26 single ids", plain), ("with 4 histories", ordered)):
        median, best = statistics.median(work.samples), min(work.samples)
        rate = work.bytes / best / 1e6
        print(
            f"{name:17} {median:9.3f} ms median {best:9.3f} ms best {work.bytes / 1e6:9.1f} MB of rows {rate:7.2f} GB/s"
        )
    times = statistics.median(ordered.samples) / statistics.median(plain.samples)
    ratio = ordered.bytes / plain.bytes
    verdict = "within" if times <= 2 * ratio else "above"
    print(f"time x {times:.2f}, bytes x {ratio:.2f}: {times / ratio:.2f} times the bytes, {verdict} the target of 2")


if __name__ == "__main__":
    main()
