"""Updates of rows whose columns are on several devices: rules that need complete rows get them.

A rule that works element by element updates each piece for itself. Others (row-wise moments, norms of rows) and
stochastic rounding, which numbers the elements of a row, need all pieces: the devices that hold the pieces of the same
rows exchange the touched ones, each applies the complete step, and keeps its own columns. Numbers that belong to a row
are on each of these devices, and stay equal.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any, Final

import jax
import jax.numpy as jnp

from sparrow.embedding.sharding.layout import Layout
from sparrow.embedding.sharding.shards import Shards
from sparrow.kernels import Backend, EntryGradients, RowStep, StepScalars, sum_by_row
from sparrow.rules import PER_ROW

Update = tuple[jax.Array, tuple[jax.Array, ...]]

MIXING: Final = ("reduce", "arg", "cum", "sort", "dot", "gather", "scatter", "rev", "concat", "slice", "dynamic")
"""Beginnings of the names of operations that mix the elements of a row."""


@functools.lru_cache(maxsize=1024)
def is_by_element(step: RowStep) -> bool:
    """Return whether the step of an element depends on this element alone.

    >>> from sparrow.rules import LAMB, Adam
    >>> def step(rule):
    ...     slots = tuple((name, slot.layout) for name, slot in rule.slots.items())
    ...     return RowStep(rule.without_numbers(), slots, tuple(rule.hyper_names()), 4, "float32")
    >>> is_by_element(step(Adam())), is_by_element(step(LAMB()))
    (True, False)
    """
    if step.stochastic or any(layout == PER_ROW for _, layout in step.slots):
        return False
    row, number = jnp.zeros(step.dim), jnp.zeros(())

    def update(row: jax.Array, grad: jax.Array, slots: dict[str, Any], hyper: dict[str, Any]) -> object:
        return step.rule.update(row, grad, slots, SimpleNamespace(**hyper))

    slots, hyper = {name: row for name, _ in step.slots}, dict.fromkeys(step.scalars, number)
    return not any(name.startswith(MIXING) for name in _operations(jax.make_jaxpr(update)(row, row, slots, hyper)))


def _operations(jaxpr: Any) -> set[str]:
    found = set()
    for equation in jaxpr.eqns:
        found.add(equation.primitive.name)
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
            found |= _operations(inner) if hasattr(inner, "eqns") else set()
    return found


def updated(
    shards: Shards,
    layout: Layout,
    backend: Backend,
    step: RowStep,
    table: jax.Array,
    slots: tuple[jax.Array, ...],
    grads: EntryGradients,
    scalars: StepScalars,
) -> Update:
    """On a shard: the update of `Backend.update`, where the shard has a piece of each row."""
    rows, sums = sum_by_row(grads, layout.local_rows)  # the same rows on all devices with pieces of them
    held = (table, *slots)
    complete = [_joined(shards, layout, one.at[rows].get(mode="clip")) for one in held]
    complete.append(_joined(shards, layout, sums))
    first_rows = jnp.searchsorted(rows, scalars.first_rows).astype(jnp.int32)
    logical = None if scalars.logical_rows is None else scalars.logical_rows.at[rows].get(mode="clip")
    numbers = jnp.arange(len(rows), dtype=jnp.int32)
    new, new_slots = backend.update(
        step,
        complete[0],
        tuple(complete[1:-1]),
        EntryGradients(jnp.where(rows < layout.local_rows, numbers, len(rows)), None, None, complete[-1]),
        scalars._replace(first_rows=first_rows, logical_rows=logical),
    )
    width = table.shape[1]
    begin = layout.piece(shards.index) * width

    def placed(old: jax.Array, new: jax.Array) -> jax.Array:
        own = new if new.ndim == 1 else jax.lax.dynamic_slice_in_dim(new, begin, width, 1)
        return old.at[rows].set(own, mode="drop")

    made = [placed(old, one) for old, one in zip(held, (new, *new_slots), strict=True)]
    return made[0], tuple(made[1:])


def _joined(shards: Shards, layout: Layout, own: jax.Array) -> jax.Array:
    """(N, dim): complete rows, from the pieces of the devices that have them; (N,) stays as it is."""
    if own.ndim == 1:
        return own
    columns, count = layout.columns, layout.spans[0].over
    each = columns * count
    # One step of a ring at a time: device p of a group gets the piece of device p - 1, then of p - 2, ...
    ring = [(d, d - d % each + (d % each + count) % each) for d in range(layout.shards)]
    pieces, piece = [own], layout.piece(shards.index)
    for _ in range(columns - 1):
        moved: Any = jax.lax.ppermute(pieces[-1], shards.axes, ring)  # type: ignore[no-untyped-call]
        pieces.append(moved)
    by_distance = jnp.stack(pieces)  # (columns, N, width), the piece of (piece - distance)
    order = (piece - jnp.arange(columns)) % columns
    return jnp.moveaxis(by_distance[order], 0, 1).reshape(len(own), -1)
