"""`OneDevice`: the Embedder's work on the arrays of one device."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.embedding.batches.packing import Measured
from sparrow.embedding.batches.sizes import Sizes
from sparrow.embedding.cached import Cached, OwnRows
from sparrow.embedding.dynamic.saved import Placing
from sparrow.embedding.guards import undifferentiable, whole
from sparrow.embedding.initializers import TablePlace, cut, draw_all, draw_into, is_independent, zeros
from sparrow.embedding.packed_batch import Group, PackedBatch, activations, bag_grads
from sparrow.embedding.row_grads import RowGrads
from sparrow.embedding.stacking import Stack, stable_hash
from sparrow.embedding.state import EmbeddingState
from sparrow.embedding.tracking import mark
from sparrow.kernels import EntryGradients, ids
from sparrow.rules import PER_ROW

Stacked = Sequence[tuple[Stack, tuple[Group, ...]]]
"""The stacks, each with its groups of features in a batch."""


class OneDevice(OwnRows):
    """All rows of a stack in one array, in their logical order. `Embedder` describes the methods."""

    def init(self, key: jax.Array) -> EmbeddingState:
        tables = {stack.name: _init_tables(stack, key) for stack in self.stacks if not stack.apart}
        step, seed, slots, held = jax.jit(self._beside)(key)  # one program: each operation outside has its own
        caches = {}
        for name, cache in self.caches.items():
            arrays, caches[name] = cache.init(key)
            tables[name] = arrays.pop("")
            slots[name] = arrays
        return EmbeddingState(step, seed, tables, slots, ids=held, caches=caches)

    def _beside(self, key: jax.Array) -> tuple[jax.Array, jax.Array, dict[str, dict[str, jax.Array]], Any]:
        slots = {
            stack.name: {name: _init_slot(stack, name, layout) for name, layout in stack.step.slots}
            for stack in self.stacks
            if not stack.apart
        }
        held = {stack.name: ids.init(stack.ids) for stack in self.stacks if stack.is_dynamic}
        return jnp.zeros((), jnp.int32), seed_of(key), slots, held

    def pack(
        self, inputs: Mapping[str, Any], capacity: int | Mapping[str, int] | None, sizes: Sizes | None
    ) -> PackedBatch:
        return self.packer.pack(inputs, capacity, sizes)

    def measure(self, inputs: Mapping[str, Any]) -> Measured:
        return self.packer.measure(inputs)

    def exchange(self, batch: PackedBatch) -> PackedBatch:
        return batch

    def batch_size(self, group: Group) -> int:
        """Examples of a group in the whole batch."""
        return group.num_bags

    def lookup(
        self, state: EmbeddingState, batch: PackedBatch, stacked: Stacked, dtype: Any, *, sort: bool
    ) -> tuple[dict[str, jax.Array], PackedBatch]:
        """Activations by feature; and the batch, with the order of its entries where ``sort`` asks for it."""
        made: dict[str, jax.Array] = {}
        lookups = dict(batch.lookups)
        for stack, groups in stacked:
            backend, given = self.backends[stack.name], batch.lookups[stack.name]
            is_raw = stack.name in batch.raw
            if is_raw:
                rows = self.find_own(stack, state.ids, batch.raw[stack.name], given.ids, state.step)
                given = dataclasses.replace(given, ids=rows)
            table = self._whole(stack, undifferentiable(state.tables[stack.name]))
            if stack.apart and stack.name not in batch.cached:
                is_raw = True
                table, rows = self.caches[stack.name].read(table, state.caches[stack.name], given.ids)
                given = dataclasses.replace(given, ids=rows)
            if sort and not stack.frozen and not is_raw:
                rows, lookups[stack.name] = backend.lookup_and_sort(table, given, dtype)
            else:
                rows = backend.lookup(table, given, dtype)
            made |= activations(groups, rows)
        return made, dataclasses.replace(batch, lookups=lookups)

    def fetch(self, state: EmbeddingState, batch: PackedBatch, stacked: Stacked) -> tuple[PackedBatch, Any]:
        """Return the batch, and nothing else: no row comes from another device."""
        return batch, {}

    def patch(
        self,
        state: EmbeddingState,
        batch: PackedBatch,
        fetched: Any,
        grads: RowGrads | None,
        stacked: Stacked,
        dtype: Any,
    ) -> dict[str, jax.Array]:
        return self.lookup(state, batch, stacked, dtype, sort=False)[0]

    def assign(
        self, state: EmbeddingState, batch: PackedBatch, stacked: Stacked, when: jax.Array | None
    ) -> tuple[EmbeddingState, PackedBatch]:
        """Give rows to the raw ids of a batch, start the fresh ones, and bring rows in host memory to the device."""
        stacks = [stack for stack, _ in stacked if stack.name in batch.raw or stack.apart]
        tables = state.tables | {stack.name: self._whole(stack, state.tables[stack.name]) for stack in stacks}
        slots, held, caches = dict(state.slots), dict(state.ids), dict(state.caches)
        rows = {stack.name: batch.lookups[stack.name].ids for stack in stacks}
        numbers = state.step, state.seed, when
        found, undo = self.assign_own(stacks, (tables, slots, held, caches), batch.raw, rows, numbers)
        lookups = {name: dataclasses.replace(batch.lookups[name], ids=own) for name, own in found.items()}
        cached = tuple(stack.name for stack in stacks if stack.apart)
        state = dataclasses.replace(state, tables=tables, slots=slots, ids=held, caches=caches)
        return state, dataclasses.replace(batch, lookups=batch.lookups | lookups, raw={}, cached=cached, undo=undo)

    def undone(self, state: EmbeddingState, batch: PackedBatch, when: jax.Array) -> EmbeddingState:
        tables, slots, held = dict(state.tables), dict(state.slots), dict(state.ids)
        self.undo_own((tables, slots, held), batch.undo, when)
        return dataclasses.replace(state, tables=tables, slots=slots, ids=held)

    def placing(self, stack: Stack, table: str) -> Placing:
        number = [spec.name for spec in stack.tables].index(table)
        return Placing(stack.tables[number], stack.rows_of(table), stack.ids, number, 1, None)

    def ids_on_host(self, arrays: Any) -> Any:
        """Return a tree of arrays of a map on the host, with an axis for the devices."""
        return jax.tree.map(lambda array: array[None], jax.device_get(arrays))

    def ids_from_host(self, stack: Stack, state: ids.IdState) -> ids.IdState:
        """Return a map from the arrays of the host, with its index."""
        held = jax.tree.map(lambda array: jnp.asarray(array[0]), state)
        backend = ids.choose(self.backends[stack.name].name)
        made: ids.IdState = jax.jit(lambda state: backend.indexed(stack.ids, state))(held)
        return made

    def row_grads(self, batch: PackedBatch, act_grads: Mapping[str, jax.Array], stacked: Stacked) -> RowGrads:
        stacks = {}
        for stack, groups in stacked:
            lookups = batch.lookups[stack.name]
            grads = bag_grads(groups, act_grads, self.limits, stack.dim)
            stacks[stack.name] = EntryGradients(lookups.ids, lookups.bags, lookups.gains, grads, lookups.order)
        return RowGrads(stacks, tuple((stack.name, stack.held_rows) for stack in self.stacks))

    def apply(self, state: EmbeddingState, grads: RowGrads) -> EmbeddingState:
        renumbered, tables, slots = dict(state.table_rows), dict(state.tables), dict(state.slots)
        for stack in self.stacks:
            if stack.frozen:
                continue
            if stack.apart and stack.step.stochastic:
                renumbered[stack.name] = self.caches[stack.name].table_rows(state.caches[stack.name])
            names = [name for name, _ in stack.step.slots]
            tables[stack.name], new_slots = self.backends[stack.name].update(
                stack.step,
                self._whole(stack, state.tables[stack.name]),
                tuple(state.slots[stack.name][name] for name in names),
                grads.stacks[stack.name],
                stack.scalars(state.step, state.seed, renumbered.get(stack.name)),
            )
            slots[stack.name] = dict(zip(names, new_slots, strict=True))
        caches = {name: held._replace(clock=held.clock + 1) for name, held in state.caches.items()}
        return dataclasses.replace(state, step=state.step + 1, tables=tables, slots=slots, caches=caches)

    def no_rows(self, stack: Stack) -> jax.Array:
        return jnp.zeros(stack.num_rows, jnp.uint8)

    def marked(self, state: EmbeddingState, rows: Mapping[str, jax.Array]) -> EmbeddingState:
        return dataclasses.replace(state, touched=mark(state.touched, rows))

    def assigned_rows(self, batch: PackedBatch, names: Sequence[str]) -> dict[str, jax.Array]:
        return {name: batch.lookups[name].ids for name in names}

    def _whole(self, stack: Stack, table: jax.Array) -> jax.Array:
        """Return the table; only XLA can work with one that was split over devices."""
        return table if self.backends[stack.name].name == "xla" else whole(table)

    def emptied(self, stack: Stack, held: Cached) -> Cached:
        return self.caches[stack.name].empty(held.address)

    def rows(self, stack: Stack, array: jax.Array, span: slice) -> Any:
        """Rows of a stack's array in logical order."""
        return array if span == slice(0, stack.num_rows) else array[span]

    def with_rows(self, stack: Stack, array: Any, span: slice, new: Any) -> Any:
        if stack.apart:
            array[span] = np.asarray(new).astype(array.dtype)
            return array
        new = jnp.asarray(new, array.dtype)
        return new if span == slice(0, stack.num_rows) else array.at[span].set(new)


def seed_of(key: jax.Array) -> jax.Array:
    """Return the seed of stochastic rounding."""
    return jax.random.bits(jax.random.fold_in(key, stable_hash("stochastic rounding")), (), jnp.uint32)


def _init_tables(stack: Stack, key: jax.Array) -> jax.Array:
    keys = own_keys(key, np.array([stable_hash(table.name) for table in stack.tables], np.uint32))
    if len(stack.tables) == 1:
        return stack.tables[0].initial_values(keys[0])
    places = [
        TablePlace(table.values, start, table.vocabulary_size)
        for table, start in zip(stack.tables, stack.first_rows, strict=True)
    ]
    drawn = [number for number, table in enumerate(stack.tables) if is_independent(table.values)]
    if len(drawn) == len(places):
        return draw_all((stack.num_rows, stack.dim), stack.step.dtype, keys, places)
    array = zeros((stack.num_rows, stack.dim), stack.step.dtype)
    for number in sorted({*range(len(places))} - {*drawn}):
        array = _place(array, stack.tables[number].initial_values(keys[number]), places[number].first)
        # Waited for, or the next table would be drawn while this one is still held twice.
        jax.block_until_ready(array)  # type: ignore[no-untyped-call]
    if drawn:
        array = draw_into(array, keys[np.array(drawn, np.int32)], [places[number] for number in drawn])
    return cut(array, stack.num_rows)


@jax.jit
def own_keys(key: jax.Array, names: jax.Array) -> jax.Array:
    """Return the keys of tables, which depend on their names alone."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, names)


@functools.partial(jax.jit, donate_argnums=0)  # in place: at most one table is held twice
def _place(array: jax.Array, rows: jax.Array, start: int) -> jax.Array:
    return jax.lax.dynamic_update_slice(array, rows, (start, 0))


def _init_slot(stack: Stack, slot: str, layout: str) -> jax.Array:
    starts = [table.optimizer.slot_init(slot) for table in stack.tables]
    shape = (stack.num_rows,) if layout == PER_ROW else (stack.num_rows, stack.dim)
    array = jnp.full(shape, starts[0], jnp.float32)
    for table, value in zip(stack.tables, starts, strict=True):
        if value != starts[0]:
            array = array.at[stack.rows_of(table.name)].set(value)
    return array
