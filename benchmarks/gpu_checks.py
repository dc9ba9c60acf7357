"""Checks before a figure counts: right numbers, on fresh random inputs, and no copy of a table."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gpu_workloads import WORKLOADS, make_batch, make_state, make_step

from sparrow.kernels import cuda, xla
from sparrow.rules import Rule


def reference(rule: Rule, table: np.ndarray, slots: list[np.ndarray], grads: np.ndarray) -> list[np.ndarray]:
    """Table and slots after the step, in NumPy float64, for the rules of the benchmark; ``grads`` by touched row."""
    h: Any = {name: float(value) for name, value in rule.hyper(3).items()}
    lr, eps = h["learning_rate"], h.get("eps", 0.0)
    if rule.name == "SGD":
        return [table - lr * grads]
    if rule.name == "RowwiseAdagrad":
        accumulator = slots[0] + (grads**2).mean(axis=1)
        return [table - lr * grads / (np.sqrt(accumulator) + eps)[:, None], accumulator]
    square = grads**2 if rule.name == "Adam" else (grads**2).mean(axis=1)
    momentum = h["beta1"] * slots[0] + (1 - h["beta1"]) * grads
    velocity = h["beta2"] * slots[1] + (1 - h["beta2"]) * square
    root = np.sqrt(velocity / (1 - h["beta2"] ** 4)) + eps  # step 3 is the fourth
    root = root if root.ndim == 2 else root[:, None]
    return [table - lr * momentum / (1 - h["beta1"] ** 4) / root, momentum, velocity]


def check(rule: Rule, name: str, with_xla: bool) -> dict[str, float | str]:
    """Relative errors of one update and one lookup on a smaller draw of workload ``name``.

    ``with_xla``: against the reference backend as well, which takes the compiler long on a GPU.
    """
    workload = dataclasses.replace(WORKLOADS[name], rows=20_000, batch=4096)
    rng = np.random.default_rng()
    ids = rng.zipf(1.2, (workload.num_tables, workload.batch * workload.bag)) % workload.rows
    batch = make_batch(workload, ids)
    step, scalars = make_step(rule, workload)
    table, slots = make_state(step, workload.num_rows, int(rng.integers(2**31)))
    bag_grads = jax.random.normal(jax.random.key(int(rng.integers(2**31))), (batch.lookups.num_bags, workload.dim))
    grads = batch.row_gradients(bag_grads)

    sums = np.zeros((workload.num_rows, workload.dim))
    bags = np.repeat(np.arange(batch.lookups.num_bags), workload.bag)
    np.add.at(sums, np.asarray(batch.lookups.ids), np.asarray(bag_grads, np.float64)[bags])
    touched = np.unique(np.asarray(batch.lookups.ids))
    before = [np.asarray(x, np.float64) for x in (table, *slots)]
    expected = [x.copy() for x in before]
    changed = reference(rule, before[0][touched], [x[touched] for x in before[1:]], sums[touched])
    for array, value in zip(expected, changed, strict=True):
        array[touched] = value

    fast, again = (_flat(jax.jit(functools.partial(cuda.update, step))(table, slots, grads, scalars)) for _ in "12")
    against_xla: float | str = "–"
    if with_xla:
        slow = _flat(jax.jit(functools.partial(xla.update, step))(table, slots, grads, scalars))
        against_xla = max(_error(f - b, s - b) for f, s, b in zip(fast, slow, before, strict=True))
    pooled = np.zeros((batch.lookups.num_bags, workload.dim))
    np.add.at(pooled, bags, before[0][np.asarray(batch.lookups.ids)])
    looked_up = np.asarray(jax.jit(cuda.lookup)(table, batch.lookups))
    # The error of the change, not of the value: an update that did nothing must not look right.
    changes = [e - b for e, b in zip(expected, before, strict=True)]
    return {
        "workload": name,
        "rule": rule.name,
        "against float64": max(_error(f - b, c) for f, b, c in zip(fast, before, changes, strict=True)),
        "against xla": against_xla,
        "lookup against float64": _error(looked_up, pooled),
        "same bits twice": str(all(np.array_equal(a, b) for a, b in zip(fast, again, strict=True))),
    }


def _flat(result: Any) -> list[np.ndarray]:
    table, slots = result
    return [np.asarray(x, np.float64) for x in (table, *slots)]


def _error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def memory(gigabytes: float = 40.0) -> dict[str, float]:
    """Peak device memory, and the error, of a donated update of a table of that size. In a process of its own."""
    from sparrow.rules import RowwiseAdagrad

    dim = WORKLOADS["G1"].dim
    rows = int(gigabytes * 1e9) // (4 * dim)
    workload = dataclasses.replace(WORKLOADS["G1"], num_tables=1, rows=rows)
    rng = np.random.default_rng()
    touched = rng.choice(rows, workload.batch * 2 // 3, replace=False)
    ids = np.concatenate([touched, touched[: workload.batch - len(touched)]])  # one entry, and two
    batch = make_batch(workload, ids[None])
    rule = RowwiseAdagrad()
    step, scalars = make_step(rule, workload)
    # Not `make_state`: drawing random numbers would need memory of its own.
    table = jax.jit(lambda: jnp.sin(jax.lax.broadcasted_iota(jnp.float32, (rows, dim), 0)))()
    slots = (jnp.ones(rows),)
    bag_grads = jax.random.normal(jax.random.key(0), (batch.lookups.num_bags, dim))
    sums = np.array(bag_grads, np.float64)[: len(touched)]
    sums[: len(ids) - len(touched)] += np.asarray(bag_grads, np.float64)[len(touched) :]
    before = np.asarray(table[touched], np.float64)
    expected, _ = reference(rule, before, [np.ones(len(touched))], sums)

    update = jax.jit(functools.partial(cuda.update, step), donate_argnums=(0, 1))
    table, slots = update(table, slots, batch.row_gradients(bag_grads), scalars)
    stats = jax.local_devices()[0].memory_stats() or {}
    state = table.nbytes + sum(slot.nbytes for slot in slots)
    return {
        "table and slots, GB": state / 1e9,
        "peak, GB": stats.get("peak_bytes_in_use", float("nan")) / 1e9,
        "error of the change": _error(np.asarray(table[touched], np.float64) - before, expected - before),
    }


def compile_times() -> list[dict[str, float | str]]:
    """Seconds until the kernels of a lookup and an update are there: compiled, and from the cache on disk."""
    import tempfile

    from sparrow.kernels import cache
    from sparrow.kernels.cuda import launches, machine, source, tuning
    from sparrow.rules import SHIPPED

    rows: list[dict[str, float | str]] = []
    gpu = machine.find()
    assert not isinstance(gpu, str), gpu
    given = os.environ.get(cache.VARIABLE)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[cache.VARIABLE] = folder
        for rule in (one() for one in SHIPPED):
            step, _ = make_step(rule, WORKLOADS["G1"])
            sorting = tuning.for_sort(WORKLOADS["G1"].lookups, gpu.cores)
            modules = [
                source.update_module(step, "float32", False, True, False, tuning.for_update(step, "float32")),
                source.lookup_module(
                    step.dim, "float32", "float32", True, tuning.for_lookup(step.dim, "float32", True)
                ),
                source.sort_module(launches.sort_passes(WORKLOADS["G1"].num_rows, sorting), sorting),
            ]
            row: dict[str, float | str] = {"rule": rule.name}
            for name in ("compiled", "from the cache"):
                begin = time.perf_counter()
                for module in modules:
                    gpu.image(module)
                row[name] = time.perf_counter() - begin
            rows.append(row)
            for path in pathlib.Path(folder).iterdir():
                path.unlink()
    os.environ.pop(cache.VARIABLE)
    if given is not None:
        os.environ[cache.VARIABLE] = given
    return rows
