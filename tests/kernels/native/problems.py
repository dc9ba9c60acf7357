"""Kernel inputs, and what the kernels must give, in NumPy."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.kernels import EntryGradients, Lookups, RowStep, StepScalars, xla
from sparrow.kernels.types import LIMITS
from sparrow.rules import SGD, Rule


def row_step(rule: Rule, dim: int, dtype: str = "float32", limits: bool = False, stochastic: bool = False) -> RowStep:
    return RowStep(
        rule=rule.without_numbers(),
        slots=tuple((name, slot.layout) for name, slot in rule.slots.items()),
        scalars=(*rule.hyper(0), *(LIMITS if limits else ())),
        dim=dim,
        dtype=dtype,
        limits=limits,
        stochastic=stochastic,
    )


def scalars(rule: Rule, first_rows: tuple[int, ...] = (0,), limits: bool = False, step: int = 3) -> StepScalars:
    """The rule's numbers at ``step``, a little different for every table."""
    numbers = [float(value) for value in rule.hyper(jnp.asarray(step)).values()]
    hyper = np.asarray(
        [[*(n * (1 + 0.01 * t) for n in numbers), *((-2.0, 2.0) if limits else ())] for t in range(len(first_rows))]
    )
    hyper = hyper.reshape(len(first_rows), len(numbers) + 2 * limits)
    seeds = np.arange(len(first_rows), dtype=np.uint32) + 5
    return StepScalars(jnp.asarray(hyper, jnp.float32), jnp.asarray(seeds), jnp.asarray(first_rows, jnp.int32))


def reference_update(step: RowStep, state: Any, grads: EntryGradients, numbers: StepScalars) -> Any:
    """Return the reference's result, computed on the CPU: its program for a GPU takes minutes to compile."""
    inputs = jax.tree.map(np.asarray, (*state, grads, numbers))
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        return jax.tree.map(np.asarray, jax.jit(functools.partial(xla.update, step))(*inputs))


def random_state(step: RowStep, num_rows: int, rng: np.random.Generator) -> tuple[Any, tuple[Any, ...]]:
    table = jnp.asarray(rng.normal(size=(num_rows, step.dim)), step.dtype)
    slots = tuple(jnp.asarray(np.abs(rng.normal(size=(num_rows, *shape))), jnp.float32) for shape in step.slot_shapes)
    return table, slots


def random_grads(
    rng: np.random.Generator,
    dim: int,
    num_rows: int,
    count: int = 300,
    num_bags: int = 40,
    with_gains: bool = False,
    with_bags: bool = True,
) -> EntryGradients:
    """Entries with duplicates, with ids and bags that are padding."""
    num_bags = num_bags if with_bags else count
    return EntryGradients(
        ids=jnp.asarray(rng.integers(0, num_rows + num_rows // 8 + 1, count), jnp.int32),
        bags=jnp.asarray(rng.integers(0, num_bags + 1, count), jnp.int32) if with_bags else None,
        gains=jnp.asarray(rng.uniform(0.5, 2, count), jnp.float32) if with_gains else None,
        bag_grads=jnp.asarray(rng.normal(size=(num_bags, dim)), jnp.float32),
    )


def random_lookups(
    rng: np.random.Generator, num_rows: int, num_bags: int, longest: int = 5, with_gains: bool = False
) -> Lookups:
    """Ragged bags, empty ones too, with ids that are padding."""
    lengths = rng.integers(0, longest + 1, num_bags)
    count = int(lengths.sum())
    return Lookups(
        ids=jnp.asarray(rng.integers(0, num_rows + num_rows // 8 + 1, count), jnp.int32),
        bags=jnp.asarray(np.repeat(np.arange(num_bags), lengths), jnp.int32),
        offsets=jnp.asarray(np.concatenate([[0], np.cumsum(lengths)]), jnp.int32),
        gains=jnp.asarray(rng.uniform(0.5, 2, count), jnp.float32) if with_gains else None,
        num_bags=num_bags,
    )


def float64_row_grads(grads: EntryGradients, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are touched, and every row's summed gradient."""
    ids = np.asarray(grads.ids)
    bag_grads = np.asarray(grads.bag_grads, np.float64)
    bags = np.arange(len(ids)) if grads.bags is None else np.asarray(grads.bags)
    gains = np.ones(len(ids)) if grads.gains is None else np.asarray(grads.gains, np.float64)
    touched = np.zeros(num_rows, bool)
    sums = np.zeros((num_rows, bag_grads.shape[1]))
    for row, bag, gain in zip(ids, bags, gains, strict=True):
        if 0 <= row < num_rows:
            touched[row] = True
            if 0 <= bag < len(bag_grads):
                sums[row] += gain * bag_grads[bag]
    return touched, sums


def sgd_step(dim: int, dtype: str = "float32") -> RowStep:
    return row_step(SGD(), dim, dtype)


def learning_rate(rate: float, first_rows: tuple[int, ...] = (0,)) -> StepScalars:
    """SGD's only number, and its two constant fellows."""
    tables = len(first_rows)
    hyper = np.tile([[rate, *([0.0] * (len(SGD().hyper(0)) - 1))]], (tables, 1))
    return StepScalars(
        jnp.asarray(hyper, jnp.float32), jnp.zeros(tables, jnp.uint32), jnp.asarray(first_rows, jnp.int32)
    )
