"""`NewRows`: rows that start fresh, made on the device from the ids alone."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.embedding.dynamic.id_map import Ids, Rows
from sparrow.embedding.initializers import Uniform
from sparrow.embedding.sharding.layout import Layout
from sparrow.embedding.sharding.shards import EVERYWHERE, Shards
from sparrow.embedding.specs import TableSpec
from sparrow.embedding.stacking import Stack, stable_hash
from sparrow.rules import PER_ROW


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NewRows:
    """Rows of one table that start fresh before a step.

    Attributes:
      rows: (N,) int32 of the table; padded with rows past the last, to a power of two.
      ids: (N, 2) uint32, the lower and upper halves of the ids that have them.
    """

    rows: jax.Array
    ids: jax.Array

    @classmethod
    def of(cls, table: TableSpec, rows: Rows, ids: Ids) -> NewRows:
        """Pad them, so that few programs serve all numbers of rows."""
        size = 1 << max(len(rows) - 1, 7).bit_length()
        padded = np.full(size, table.vocabulary_size, np.int32)
        halves = np.zeros((size, 2), np.uint32)
        padded[: len(rows)] = rows
        halves[: len(rows), 0] = ids.astype(np.uint32)
        halves[: len(rows), 1] = (ids >> np.uint64(32)).astype(np.uint32)
        return cls(padded, halves)  # type: ignore[arg-type]


Arrays = dict[str, jax.Array]
"""A stack's table under the name "", and its slots by name."""


class Spread(NamedTuple):
    """The places of a stack's rows on a mesh."""

    shards: Shards
    layout: Layout


def started(
    stack: Stack,
    arrays: Arrays,
    seed: jax.Array,
    new: Mapping[str, NewRows],
    when: jax.Array | None = None,
    spread: Spread | None = None,
) -> Arrays:
    """Return the arrays of a stack, donated, with the rows of ``new``, by table, at their start, if ``when``.

    ``spread``: the places of its rows; None: all are on one device, in order.
    """
    for table in stack.tables:
        if table.name not in new:
            continue
        starts = tuple(
            (name, float(table.optimizer.slot_init(name)), layout == PER_ROW) for name, layout in stack.step.slots
        )
        if stack.frozen:
            starts = ()
        at = _places(stack, table, new[table.name], when)
        key = jax.random.fold_in(jax.random.key(seed), stable_hash(table.name))
        arrays = _start(_initializer(table), starts, spread, arrays, at, new[table.name].ids, key)
    return arrays


def initial_rows(table: TableSpec, seed: jax.Array, ids: jax.Array) -> jax.Array:
    """(N, dim) of the table's dtype: where the rows of ``ids``, (N, 2) uint32, start."""
    key = jax.random.fold_in(jax.random.key(seed), stable_hash(table.name))
    return _drawn(_initializer(table), table.embedding_dim, table.dtype, ids, key)


def held_rows(
    stack: Stack, arrays: Arrays, new: Mapping[str, NewRows], spread: Spread | None = None
) -> dict[str, Arrays]:
    """Return the values that `started` overwrites, by table; on a mesh, each device its own."""
    return {
        table.name: _take(spread, arrays, _places(stack, table, new[table.name], None))
        for table in stack.tables
        if table.name in new
    }


def put_back(
    stack: Stack,
    arrays: Arrays,
    new: Mapping[str, NewRows],
    held: Mapping[str, Arrays],
    spread: Spread | None = None,
) -> Arrays:
    """Undo `started`; the arrays are donated."""
    for table in stack.tables:
        if table.name in new:
            arrays = _put(spread, arrays, held[table.name], _places(stack, table, new[table.name], None))
    return arrays


def _at_owners(spread: Spread | None, f: Callable[..., Arrays], arrays: Arrays, at: jax.Array, *split: Any) -> Arrays:
    """Return ``f(arrays, at, *split)``; on a mesh, on each device with its own rows. Others are past its last one."""
    if spread is None:
        return f(arrays, at, *split)
    shards, layout = spread

    def local(arrays: Arrays, at: jax.Array, *split: Any) -> Arrays:
        owner, row = layout.place(at, jnp)
        own = (owner == shards.index) & (at < layout.num_rows)
        return f(arrays, jnp.where(own, row, layout.local_rows), *split)

    specs = (shards.split, EVERYWHERE, *[shards.split] * len(split))
    made: Arrays = shards.each(local, specs, shards.split)(arrays, at, *split)
    return made


def _places(stack: Stack, table: TableSpec, new: NewRows, when: jax.Array | None) -> jax.Array:
    """Rows of the stack's array; padding is past its end."""
    rows = jnp.asarray(new.rows)
    valid = rows < table.vocabulary_size
    if when is not None:
        valid &= when
    return jnp.where(valid, rows + stack.rows_of(table.name).start, stack.num_rows)


def _initializer(table: TableSpec) -> Callable[..., jax.Array]:
    limit = table.vocabulary_size**-0.5
    return table.initializer or Uniform(-limit, limit)


def _drawn(initializer: Callable[..., jax.Array], dim: int, dtype: Any, ids: jax.Array, key: jax.Array) -> jax.Array:
    def one(halves: jax.Array) -> jax.Array:
        own = jax.random.fold_in(jax.random.fold_in(key, halves[1]), halves[0])
        return initializer(own, (1, dim), jnp.float32)[0].astype(dtype)

    return jax.vmap(one)(jnp.asarray(ids))


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=3)
def _start(
    initializer: Callable[..., jax.Array],
    slots: tuple[tuple[str, float, bool], ...],
    spread: Spread | None,
    arrays: Arrays,
    at: jax.Array,
    ids: jax.Array,
    key: jax.Array,
) -> Arrays:
    table = arrays[""]
    values = {"": _drawn(initializer, table.shape[1], table.dtype, ids, key)}
    for name, start, per_row in slots:
        shape = (len(at),) if per_row else (len(at), table.shape[1])
        values[name] = jnp.full(shape, start, arrays[name].dtype)
    return _at_owners(spread, lambda arrays, at: _put_all(arrays, values, at), arrays, at)


@functools.partial(jax.jit, static_argnums=0)
def _take(spread: Spread | None, arrays: Arrays, at: jax.Array) -> Arrays:
    def take(arrays: Arrays, at: jax.Array) -> Arrays:
        return {name: array.at[at].get(mode="clip") for name, array in arrays.items()}

    return _at_owners(spread, take, arrays, at)


def _put_all(arrays: Arrays, values: Arrays, at: jax.Array) -> Arrays:
    return {
        name: array.at[at].set(values[name], mode="drop") if name in values else array for name, array in arrays.items()
    }


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _put(spread: Spread | None, arrays: Arrays, values: Arrays, at: jax.Array) -> Arrays:
    return _at_owners(spread, lambda arrays, at, values: _put_all(arrays, values, at), arrays, at, values)
