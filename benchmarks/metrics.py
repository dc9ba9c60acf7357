"""Metrics compared with the methods of other libraries, in one run on the CPU.

    python benchmarks/metrics.py             # full size; writes benchmarks/results/metrics.md
    python benchmarks/metrics.py --quick     # the same at a hundredth of the size, nothing written

The peers' way is written here from the description of TorchEasyRec's metrics, in NumPy: per call NumPy costs less than
PyTorch, so it is not the slower for it. Where it would take minutes it is timed on a part and scaled, which the result
notes. Measurements that are compared are interleaved; a figure is the median of its rounds.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import pathlib
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

import sparrow as sp
from sparrow import metrics

HERE = pathlib.Path(__file__).parent
Array = NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes of the measurements."""

    grouped_rows: int = 10_000_000
    groups: int = 1_000_000
    groups_timed: int = 20_000  # of the peers' loop
    xauc_rows: int = 1_000_000
    pairs_timed: int = 4_000_000  # of the peers' sample
    rounds: int = 5
    steps: int = 300


QUICK = Size(
    grouped_rows=100_000, groups=10_000, groups_timed=2_000, xauc_rows=20_000, pairs_timed=100_000, rounds=3, steps=20
)


def interleaved(functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every call; one call each to warm up, then in turn."""
    for function in functions.values():
        function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def median(values: list[float]) -> float:
    return statistics.median(values)


# Grouped AUC ----------------------------------------------------------------------------------------------------------


def area_of_one_group(scores: Array, labels: Array) -> float:
    """Return the area under the exact ROC curve: sort, running counts at distinct scores, trapezoids."""
    order = np.argsort(-scores, kind="stable")
    scores, labels = scores[order], labels[order]
    distinct = np.append(np.flatnonzero(np.diff(scores)), labels.size - 1)
    true_positives = np.cumsum(labels)[distinct]
    false_positives = 1 + distinct - true_positives
    x = np.append(0, false_positives) / false_positives[-1]
    y = np.append(0, true_positives) / true_positives[-1]
    return float(np.trapezoid(y, x))


def grouped_auc_by_loop(scores: Array, labels: Array, keys: Array) -> float:
    """Sort by key, split, one group after the other; groups of one class are dropped."""
    order = np.argsort(keys, kind="stable")
    scores, labels, keys = scores[order], labels[order], keys[order]
    cuts = np.flatnonzero(np.diff(keys)) + 1
    areas = [
        area_of_one_group(group_scores, group_labels)
        for group_scores, group_labels in zip(np.split(scores, cuts), np.split(labels, cuts), strict=True)
        if 0 < group_labels.mean() < 1
    ]
    return float(np.mean(areas))


def grouped_auc(size: Size) -> Iterator[str]:
    rng = np.random.default_rng(0)
    scores = rng.random(size.grouped_rows, dtype=np.float32)
    labels = (rng.random(size.grouped_rows) < 0.2).astype(np.int64)
    keys = rng.integers(0, size.groups, size.grouped_rows)
    metric, batch = metrics.GroupedAUC(), 1 << 16
    timed = keys < size.groups_timed
    part = scores[timed], labels[timed], keys[timed]

    def feed() -> Any:
        state = metric.init()
        for start in range(0, size.grouped_rows, batch):
            rows = slice(start, start + batch)
            state = metric.update(state, scores[rows], labels[rows], groups=keys[rows])
        return state

    state = feed()
    values: dict[str, float] = {}
    seconds = interleaved(
        {
            "update": feed,
            "compute": lambda: values.update(sparrow=metric.compute(state)),
            "loop": lambda: values.update(loop=grouped_auc_by_loop(*part)),
        },
        size.rounds,
    )
    on_part = metric.compute(metric.update(metric.init(), part[0], part[1], groups=part[2]))
    if abs(on_part - values["loop"]) > 1e-9:
        raise SystemExit(f"grouped AUC: {on_part} is not the loop's {values['loop']}")
    loop = median(seconds["loop"]) * size.grouped_rows / part[0].size
    ours = median(seconds["update"]) + median(seconds["compute"])
    yield f"## Grouped AUC: {size.grouped_rows:,} rows, {size.groups:,} groups"
    yield ""
    yield "| | seconds |"
    yield "|---|---|"
    yield f"| update, in batches of {batch:,} | {median(seconds['update']):.2f} |"
    yield f"| compute | {median(seconds['compute']):.2f} |"
    yield f"| loop over groups, timed on {size.groups_timed:,} groups ({part[0].size:,} rows) and scaled | {loop:.1f} |"
    yield ""
    yield f"**{loop / ours:.0f}x** with the updates, {loop / median(seconds['compute']):.0f}x for compute alone."
    yield f"On the part both give {on_part:.12f}."


# XAUC -----------------------------------------------------------------------------------------------------------------


def sampled_xauc(rng: np.random.Generator, predictions: Array, labels: Array, draws: int) -> float:
    """Pairs ``i < j`` by their number ``j (j - 1) / 2 + i``, drawn with replacement; ties are wrong."""
    rows = predictions.size
    number = rng.integers(0, rows * (rows - 1) // 2, draws)
    j = ((1 + np.sqrt(1 + 8 * number.astype(np.float64))) / 2).astype(np.int64)
    i = number - j * (j - 1) // 2
    return float(((labels[i] - labels[j]) * (predictions[i] - predictions[j]) > 0).mean())


def xauc(size: Size) -> Iterator[str]:
    rng = np.random.default_rng(1)
    labels = rng.exponential(size=size.xauc_rows).astype(np.float32)
    predictions = (labels + rng.normal(size=size.xauc_rows)).astype(np.float32)
    metric = metrics.XAUC()
    state = metric.update(metric.init(), predictions, labels)
    values: dict[str, float] = {}
    seconds = interleaved(
        {
            "exact": lambda: values.update(exact=metric.compute(state)),
            "sampled": lambda: values.update(sampled=sampled_xauc(rng, predictions, labels, size.pairs_timed)),
        },
        size.rounds,
    )
    draws = size.xauc_rows * (size.xauc_rows - 1) // 2 // 1000
    per_draw = median(seconds["sampled"]) / size.pairs_timed
    exact = median(seconds["exact"])
    yield f"## XAUC: {size.xauc_rows:,} rows"
    yield ""
    yield "| | seconds |"
    yield "|---|---|"
    yield f"| exact, all {size.xauc_rows * (size.xauc_rows - 1) // 2:,} pairs | {exact:.2f} |"
    yield (
        f"| sampled at ratio 1e-3, {draws:,} pairs, timed on {size.pairs_timed:,} and scaled | {per_draw * draws:.1f} |"
    )
    yield ""
    yield f"**{per_draw * draws / exact:.0f}x**. The exact value takes the time of {exact / per_draw:,.0f} drawn pairs."
    yield f"Exact {values['exact']:.6f}; from {size.pairs_timed:,} pairs {values['sampled']:.6f}."


# A binned AUC inside a step -------------------------------------------------------------------------------------------

BATCH, FEATURES, ROWS, DIM = 8192, 26, 100_000, 16


def make_step(emb: sp.Embedder, optimizer: Any, auc: metrics.AUC | None) -> Callable[..., Any]:
    """Lookup, three dense layers, loss, gradients, both updates; and, or not, the metric."""

    def step(tables: Any, dense: Any, dense_state: Any, seen: Any, batch: Any, labels: jax.Array) -> Any:
        activations = emb.lookup(tables, batch)

        def loss(dense: Any, activations: Any) -> tuple[jax.Array, jax.Array]:
            x = jnp.concatenate([activations[name] for name in sorted(activations)], axis=1)
            for layer in dense[:-1]:
                x = jax.nn.relu(x @ layer["w"] + layer["b"])
            logits = (x @ dense[-1]["w"] + dense[-1]["b"])[:, 0]
            return optax.sigmoid_binary_cross_entropy(logits, labels).mean(), logits

        (_, logits), (dense_grads, act_grads) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(
            dense, activations
        )
        updates, dense_state = optimizer.update(dense_grads, dense_state, dense)
        if auc is not None:
            seen = auc.update(seen, jax.nn.sigmoid(logits), labels)
        return emb.update(tables, batch, act_grads), optax.apply_updates(dense, updates), dense_state, seen

    return jax.jit(step, donate_argnums=(0, 1, 2, 3))


def auc_in_a_step(size: Size) -> Iterator[str]:
    rng = np.random.default_rng(2)
    rule = sp.rules.RowwiseAdagrad(learning_rate=0.05)
    specs = [
        sp.FeatureSpec(
            name=f"f{k:02}",
            table_spec=sp.TableSpec(
                name=f"t{k:02}", vocabulary_size=ROWS, embedding_dim=DIM, optimizer=rule, combiner="sum"
            ),
        )
        for k in range(FEATURES)
    ]
    emb, auc = sp.Embedder(specs), metrics.AUC()
    widths = [FEATURES * DIM, 256, 128, 1]
    optimizer = optax.adam(1e-3)
    batches = [emb.pack({spec.name: rng.integers(0, ROWS, BATCH) for spec in specs}) for _ in range(4)]
    labels = jnp.asarray((rng.random(BATCH) < 0.2).astype(np.float32))

    def start() -> list[Any]:
        dense = [
            {"w": jnp.asarray(rng.normal(size=shape).astype(np.float32) * shape[0] ** -0.5), "b": jnp.zeros(shape[1])}
            for shape in itertools.pairwise(widths)
        ]
        return [emb.init(jax.random.key(0)), dense, optimizer.init(dense), auc.init()]

    seconds: dict[str, list[float]] = {"plain": [], "with AUC": []}
    runs = {"plain": (make_step(emb, optimizer, None), start()), "with AUC": (make_step(emb, optimizer, auc), start())}
    names = list(runs)
    for index in range(size.steps + 3):
        for name in names if index % 2 else reversed(names):
            step, carried = runs[name]
            began = time.perf_counter()
            carried[:] = step(*carried, batches[index % len(batches)], labels)
            jax.block_until_ready(carried)
            if index >= 3:
                seconds[name].append(time.perf_counter() - began)
    added = median([b - a for a, b in zip(seconds["plain"], seconds["with AUC"], strict=True)])
    plain = median(seconds["plain"])
    alone = interleaved({"update": update_alone(auc, labels)}, size.steps)["update"]
    yield f"## Binned AUC inside a step: {BATCH:,} rows x {FEATURES} features"
    yield ""
    backend = emb.backend_of("t00")
    yield f"Tables of {ROWS:,} x {DIM}, layers {widths}, backend {backend}; {size.steps} steps each, in turn."
    yield ""
    yield "| | ms |"
    yield "|---|---|"
    yield f"| step | {plain * 1e3:.2f} |"
    yield f"| step with AUC(thresholds=200) | {median(seconds['with AUC']) * 1e3:.2f} |"
    yield f"| median of the differences, step by step | {added * 1e3:.3f} |"
    yield f"| the update alone, dispatch included | {median(alone) * 1e3:.3f} |"
    yield ""
    yield f"**{100 * added / plain:.2f}%** more per step; {100 * median(alone) / plain:.2f}% from the update alone."


def update_alone(auc: metrics.AUC, labels: jax.Array) -> Callable[[], Any]:
    p = jnp.asarray(np.random.default_rng(3).random(BATCH, dtype=np.float32))
    state = auc.init()
    return lambda: jax.block_until_ready(auc.update(state, p, labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the size, and no file")
    parser.add_argument("--only", choices=["grouped", "xauc", "step"], help="one of the three measurements")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else Size()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    parts = {"grouped": grouped_auc, "xauc": xauc, "step": auc_in_a_step}
    lines = ["# Metrics", "", f"{platform.processor() or platform.machine()}, 2 cores, jax {jax.__version__}", ""]
    for name, part in parts.items():
        if arguments.only in (None, name):
            for line in part(size):
                lines.append(line)
                print(line, flush=True)
            lines.append("")
            print(flush=True)
    if not arguments.quick and arguments.only is None:
        (HERE / "results" / "metrics.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
