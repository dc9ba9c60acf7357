"""The GPU workloads: stacked tables, ids with the frequencies of recommendation data, drawn for each run."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.kernels.types import EntryGradients, Lookups, RowStep, StepScalars
from sparrow.rules import Rule


@dataclasses.dataclass(frozen=True)
class Workload:
    """``num_tables`` tables of ``rows`` rows, one feature each; every bag holds ``bag`` ids."""

    name: str
    num_tables: int
    rows: int
    dim: int
    batch: int
    bag: int
    zipf: float | None  # the exponent; None: uniform

    @property
    def lookups(self) -> int:
        return self.num_tables * self.batch * self.bag

    @property
    def num_rows(self) -> int:
        return self.num_tables * self.rows

    def __str__(self) -> str:
        ids = f"Zipf {self.zipf}" if self.zipf else "uniform"
        return f"{self.num_tables} × {self.rows:,} rows, dim {self.dim}, batch {self.batch:,}, {self.bag} a bag, {ids}"


WORKLOADS = {
    w.name: w
    for w in (
        Workload("G1", 26, 1_000_000, 128, 65536, 1, 1.05),
        Workload("G2", 8, 2_500_000, 128, 32768, 20, 1.05),
        Workload("G3", 1, 20_000_000, 64, 262144, 20, None),
        Workload("G4", 26, 1_000_000, 32, 65536, 1, 1.05),
    )
}


def draw_ids(workload: Workload, rng: np.random.Generator) -> np.ndarray:
    """(num_tables, batch * bag) int64 ids within each table. Popular ids lie scattered over the table."""
    shape = (workload.num_tables, workload.batch * workload.bag)
    if workload.zipf is None:
        return rng.integers(0, workload.rows, shape)
    return zipf_ids(rng, workload.rows, shape, workload.zipf)


def zipf_ids(rng: np.random.Generator, rows: int, shape: tuple[int, ...], exponent: float = 1.05) -> np.ndarray:
    """Draw ids by Zipf's law, through the inverse of its cumulative form, taken as continuous."""
    power = 1.0 - exponent
    rank = ((rows**power - 1.0) * rng.random(shape) + 1.0) ** (1.0 / power)
    rank = np.minimum(rank.astype(np.int64) - 1, rows - 1)
    return rank * 2654435761 % rows


@dataclasses.dataclass(frozen=True)
class Batch:
    """One batch of a workload, on the device."""

    lookups: Lookups
    touched: int  # distinct rows

    def row_gradients(self, bag_grads: jax.Array) -> EntryGradients:
        return EntryGradients(self.lookups.ids, self.lookups.bags, self.lookups.gains, bag_grads)


def make_batch(workload: Workload, ids: np.ndarray) -> Batch:
    """Return the stack's lookups for ``ids`` of `draw_ids`."""
    stacked = (ids + workload.rows * np.arange(workload.num_tables)[:, None]).reshape(-1).astype(np.int32)
    num_bags = workload.num_tables * workload.batch
    bags = offsets = None
    if workload.bag > 1:
        bags = jnp.asarray(np.repeat(np.arange(num_bags, dtype=np.int32), workload.bag))
        offsets = jnp.arange(num_bags + 1, dtype=jnp.int32) * workload.bag
    return Batch(Lookups(jnp.asarray(stacked), bags, offsets, None, num_bags), len(np.unique(stacked)))


def make_step(rule: Rule, workload: Workload, dtype: str = "float32") -> tuple[RowStep, StepScalars]:
    """Return the row step of ``rule`` and its numbers, one row per table, at optimizer step 3."""
    hyper = rule.hyper(3)
    slots = tuple((name, slot.layout) for name, slot in rule.slots.items())
    step = RowStep(rule.without_numbers(), slots, tuple(hyper), workload.dim, dtype, stochastic=dtype != "float32")
    numbers = jnp.asarray([float(value) for value in hyper.values()], jnp.float32)
    scalars = StepScalars(
        jnp.tile(numbers, (workload.num_tables, 1)),
        jnp.zeros(workload.num_tables, jnp.uint32),
        jnp.arange(workload.num_tables, dtype=jnp.int32) * workload.rows,
    )
    return step, scalars


def make_state(step: RowStep, num_rows: int, seed: int) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """Return a random table and random non-negative slots, drawn on the device."""
    keys = jax.random.split(jax.random.key(seed), 1 + len(step.slots))
    table = jax.random.normal(keys[0], (num_rows, step.dim), step.dtype)
    slots = tuple(
        jax.random.uniform(key, (num_rows, *shape)) for key, shape in zip(keys[1:], step.slot_shapes, strict=True)
    )
    return table, slots


def floor_bytes(workload: Workload, step: RowStep | None, touched: int) -> int:
    """Return the fewest bytes that must move.

    An update reads each bag's gradient once, and reads and writes each touched row and slot once; a lookup (``step``
    None) reads each touched row once and writes each bag once. Ids are not counted.
    """
    bags = 4 * workload.num_tables * workload.batch * workload.dim
    if step is None:
        return bags + 4 * touched * workload.dim
    per_row = workload.dim + sum(int(np.prod(shape)) for shape in step.slot_shapes)
    return bags + 2 * 4 * touched * per_row
