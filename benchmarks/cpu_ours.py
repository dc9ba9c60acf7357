"""Sparrow's kernels as contenders of benchmarks/cpu.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from workloads import Batch, Workload, after_warm_up

from sparrow import rules
from sparrow.kernels import Backend, EntryGradients, Lookups, RowStep, StepScalars, native, xla

BACKENDS: dict[str, Backend] = {"native": native, "xla": xla}


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
        for name, backend in BACKENDS.items():
            self.compiled[name, "lookup"] = jax.jit(backend.lookup)
            self.compiled[name, "step"] = jax.jit(self._step(backend), donate_argnums=(0, 1))

    def _step(self, backend: Backend) -> Callable[..., Any]:
        def step(table: jax.Array, slots: Any, lookups: Lookups, grads: jax.Array, scalars: StepScalars) -> Any:
            activations = backend.lookup(table, lookups)
            # As in training, the update comes after the activations: here one number of it depends on them.
            is_nan = jnp.isnan(activations[0, 0]).astype(jnp.float32)
            row_grads = EntryGradients(lookups.ids, lookups.bags, lookups.gains, grads)
            scalars = scalars._replace(hyper=scalars.hyper + is_nan)
            return activations, backend.update(self.step_of_row, table, slots, row_grads, scalars)

        return step

    def run(self, name: str, operation: str, block: Sequence[int], warm_up: float) -> list[float]:
        """Return the seconds of each run of a block."""
        return after_warm_up(lambda batch: self._run_once(name, operation, batch), block, warm_up)

    def _run_once(self, name: str, operation: str, batch: int) -> float:
        run = self.compiled[name, operation]
        started = time.perf_counter()
        if operation == "lookup":
            run(self.table, self.inputs[batch]).block_until_ready()
        else:
            _, (self.table, self.slots) = run(self.table, self.slots, self.inputs[batch], self.grads, self.scalars)
            self.table.block_until_ready()  # all results of a call are there at the same moment
        return time.perf_counter() - started


def _lookups(workload: Workload, batch: Batch, data: list[Batch]) -> Lookups:
    """Return the batch in the stacked table, padded so that all batches have one shape."""
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
