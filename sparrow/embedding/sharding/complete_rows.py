"""Updates of rows whose columns are on several devices: rules that need complete rows get them.

A rule that works element by element updates each piece for itself. Others (row-wise moments, norms of rows) and
stochastic rounding, which numbers the elements of a row, need all pieces: the devices that hold the pieces of the same
rows share the touched ones among them. Each gets all pieces of its share, applies the complete step, and sends the
pieces back. Numbers that belong to a row are on each of these devices, and stay equal.
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
    held, columns = (table, *slots), layout.columns
    share = shared_rows(len(rows), columns)
    rows = jnp.pad(rows, (0, columns * share - len(rows)), constant_values=(1 << 31) - 1)
    count = layout.spans[0].over
    firsts = (begin + at for begin in range(0, layout.shards, columns * count) for at in range(count))
    groups = [[first + p * count for p in range(columns)] for first in firsts]  # devices with pieces of the same rows

    def swapped(pieces: jax.Array) -> jax.Array:
        """(columns, share, ...): one for each device of the group; the same from each."""
        made: jax.Array = jax.lax.all_to_all(  # type: ignore[no-untyped-call]
            pieces, shards.axes, 0, 0, axis_index_groups=groups, tiled=True
        )
        return made

    def complete(own: jax.Array) -> jax.Array:
        """Return this device's share of the rows: (share, dim), or one number each."""
        own = jnp.pad(own, ((0, len(rows) - len(own)), *[(0, 0)] * (own.ndim - 1)))
        if own.ndim == 1:
            return own.reshape(columns, share)[piece]
        return jnp.moveaxis(swapped(own.reshape(columns, share, -1)), 0, 1).reshape(share, -1)

    def placed(old: jax.Array, new: jax.Array) -> jax.Array:
        if new.ndim == 1:
            own = swapped(jnp.broadcast_to(new, (columns, share))).reshape(-1)
        else:
            own = swapped(jnp.moveaxis(new.reshape(share, columns, -1), 1, 0)).reshape(len(rows), -1)
        return old.at[rows].set(own, mode="drop")

    piece = layout.piece(shards.index)
    values = [complete(one.at[rows].get(mode="clip")) for one in held]
    own = rows.reshape(columns, share)[piece]
    logical = None if scalars.logical_rows is None else scalars.logical_rows.at[own].get(mode="clip")
    new, new_slots = backend.update(
        step,
        values[0],
        tuple(values[1:]),
        EntryGradients(
            jnp.where(own < layout.local_rows, jnp.arange(share, dtype=jnp.int32), share), None, None, complete(sums)
        ),
        scalars._replace(first_rows=jnp.searchsorted(own, scalars.first_rows).astype(jnp.int32), logical_rows=logical),
    )
    made = [placed(old, one) for old, one in zip(held, (new, *new_slots), strict=True)]
    return made[0], tuple(made[1:])


def shared_rows(touched: int, columns: int) -> int:
    """Return the rows of which each of ``columns`` devices applies the complete step."""
    return -(-touched // columns)
