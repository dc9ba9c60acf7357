"""`MeshState`: tables, slots and id maps of an Embedder on the devices of a mesh."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.embedding.cached import Cached, OwnRows
from sparrow.embedding.dynamic.saved import Placing
from sparrow.embedding.one_device import OneDevice, seed_of
from sparrow.embedding.packed_batch import PackedBatch
from sparrow.embedding.sharding import blocks
from sparrow.embedding.sharding.first_values import first_values
from sparrow.embedding.sharding.layout import Layout
from sparrow.embedding.sharding.placement import Place, to_json
from sparrow.embedding.sharding.shards import EVERYWHERE, Shards, from_host
from sparrow.embedding.stacking import Stack
from sparrow.embedding.state import EmbeddingState, state_layout
from sparrow.embedding.tracking import mark
from sparrow.kernels import ids
from sparrow.rules import PER_ROW


class MeshState(OwnRows):
    """Rows placed by `Layout`.

    Attributes:
      shards: the devices.
      places: of each table.
      layouts: where rows are, by stack.
    """

    shards: Shards
    places: Mapping[str, Place]
    layouts: dict[str, Layout]

    def init(self, key: jax.Array) -> EmbeddingState:
        """Return fresh tables and slots, with the values of one device."""
        if isinstance(key, jax.core.Tracer):
            return self._init_traced(key)
        tables, slots, caches = {}, {}, self._empty_caches()
        for stack in self.stacks:
            layout, name = self.layouts[stack.name], stack.name
            if stack.apart:
                tables[name], slots[name], caches[name] = self._init_apart(stack, caches[name], key)
                continue
            zeros = _zeros(self.shards, (layout.local_rows, stack.dim // layout.columns), stack.step.dtype)
            read, span = first_values(stack, key), (0, stack.num_rows)
            tables[name] = blocks.placed(self.shards, layout, zeros, read, span, give_away=True)
            slots[name] = {slot: _slot(self.shards, layout, stack, slot, kind) for slot, kind in stack.step.slots}
        step, seed = self.shards.put_everywhere((np.zeros((), np.int32), np.asarray(seed_of(key))))
        layout = self.shards.put_everywhere(self.layout)
        numbers, held = self._table_rows(), self._empty_ids()
        return EmbeddingState(step, seed, tables, slots, numbers, held, caches=caches, layout=layout)

    def _init_apart(self, stack: Stack, empty: tuple[Any, Cached], key: jax.Array) -> tuple[Any, Any, Cached]:
        """Return table, slots and cache of a stack in host memory, whose records get their first values."""
        (arrays, held), cache, layout = empty, self.caches[stack.name], self.layouts[stack.name]
        own = [cache.new_records(layout.local_first_rows[shard]) for shard in self.shards.local]
        held = held._replace(address=self.shards.put_parts(np.concatenate(own)))
        rows = cache.views(arrays, held)[""]
        blocks.placed(self.shards, layout, rows, first_values(stack, key), (0, stack.num_rows))
        return arrays.pop(""), arrays, held

    def _empty_caches(self) -> dict[str, Any]:
        if not self.caches:
            return {}

        def local() -> dict[str, Any]:
            return {name: cache.begun() for name, cache in self.caches.items()}

        made: dict[str, Any] = jax.jit(self.shards.each(local, (), self.shards.split))()
        return made

    @functools.cached_property
    def layout(self) -> dict[str, Any]:
        """`EmbeddingState.layout` of these places."""
        return state_layout(self.shards.count, to_json(self.places, self.shards.count))

    def _table_rows(self) -> dict[str, jax.Array]:
        rounded = [stack.name for stack in self.stacks if stack.step.stochastic and not stack.apart]
        return {name: _table_rows(self.shards, self.layouts[name]) for name in rounded}

    def _empty_ids(self) -> dict[str, ids.IdState]:
        dynamic = [stack for stack in self.stacks if stack.is_dynamic]
        if not dynamic:
            return {}

        def local() -> dict[str, ids.IdState]:
            return {stack.name: ids.init(self.id_settings(stack)) for stack in dynamic}

        made: dict[str, ids.IdState] = jax.jit(self.shards.each(local, (), self.shards.split))()
        return made

    def _init_traced(self, key: jax.Array) -> EmbeddingState:
        """`init` inside a compiled program or a trace of shapes: complete tables are made, then spread."""
        one = OneDevice(self.features, self.stacks, self.backends).init(key)

        def spread(stack: Stack, array: jax.Array) -> jax.Array:
            layout = self.layouts[stack.name]

            def local(whole: jax.Array) -> jax.Array:
                rows = layout.logical(self.shards.index, jnp.arange(layout.local_rows, dtype=jnp.int32), jnp)
                if whole.ndim > 1:
                    width = whole.shape[1] // layout.columns
                    whole = jax.lax.dynamic_slice_in_dim(whole, layout.piece(self.shards.index) * width, width, 1)
                return whole.at[rows].get(mode="fill", fill_value=0)

            made: jax.Array = self.shards.each(local, EVERYWHERE, self.shards.split)(array)
            return made

        near = [stack for stack in self.stacks if not stack.apart]
        tables = {stack.name: spread(stack, one.tables[stack.name]) for stack in near}
        slots = {s.name: {slot: spread(s, array) for slot, array in one.slots[s.name].items()} for s in near}
        caches = {}
        for name, (arrays, held) in self._empty_caches().items():
            tables[name], slots[name], caches[name] = arrays.pop(""), arrays, held
        layout, numbers, held = jax.tree.map(jnp.asarray, self.layout), self._table_rows(), self._empty_ids()
        return EmbeddingState(one.step, one.seed, tables, slots, numbers, held, caches=caches, layout=layout)

    def id_settings(self, stack: Stack) -> ids.Settings:
        layout = self.layouts[stack.name]
        return stack.ids_of_one(layout.shards, layout.local_rows)

    def placing(self, stack: Stack, table: str) -> Placing:
        """Return the places of a table's ids."""
        layout = self.layouts[stack.name]
        settings = self.id_settings(stack)
        return Placing(stack.tables[0], stack.rows_of(table), settings, 0, layout.shards, layout.logical)

    def ids_on_host(self, arrays: Any) -> Any:
        """Return a tree of arrays of all devices' maps on the host, with the devices as the first axis."""
        if self.shards.processes > 1:
            arrays = jax.jit(lambda tree: tree, out_shardings=self.shards.everywhere)(arrays)
        count = self.shards.count
        return jax.tree.map(lambda array: np.asarray(array).reshape(count, -1, *array.shape[1:]), arrays)

    def ids_from_host(self, stack: Stack, state: ids.IdState) -> ids.IdState:
        """Return the maps from the arrays of the host, with their indices."""
        settings, backend = self.id_settings(stack), ids.choose(self.backends[stack.name].name)
        flat = jax.tree.map(
            lambda array: from_host(array.reshape(-1, *array.shape[2:]), self.shards.split_sharding), state
        )
        split = self.shards.split
        made: ids.IdState = jax.jit(self.shards.each(lambda own: backend.indexed(settings, own), split, split))(flat)
        return made

    def emptied(self, stack: Stack, held: Cached) -> Cached:
        """Return an empty cache of the same records."""
        split = self.shards.split
        made: Cached = jax.jit(self.shards.each(self.caches[stack.name].empty, split, split))(held.address)
        return made

    def rows_held(self, stack: Stack) -> int:
        """Return the rows of a stack's array on each device: of its cache, where it is in host memory."""
        return self.caches[stack.name].settings.rows if stack.apart else self.layouts[stack.name].local_rows

    def no_rows(self, stack: Stack) -> jax.Array:
        zeros: jax.Array = _zeros(self.shards, (self.layouts[stack.name].local_rows,), "uint8")
        return zeros

    def marked(self, state: EmbeddingState, rows: Mapping[str, jax.Array]) -> EmbeddingState:
        """Return the state with rows marked as changed, each at its owner."""
        split = self.shards.split
        touched = self.shards.each(mark, (split, split), split)(state.touched, rows)
        return dataclasses.replace(state, touched=touched)

    def assigned_rows(self, batch: PackedBatch, names: Sequence[str]) -> dict[str, jax.Array]:
        lookups: Any = batch.lookups
        return {name: lookups[name].wanted for name in names}

    def rows(self, stack: Stack, array: blocks.Rows, span: slice) -> Any:
        """Return rows of a stack's array in logical order, as a NumPy array: they may be too large for a device."""
        _refuse_tracers(array)
        return blocks.gathered(self.shards, self.layouts[stack.name], array, (span.start, span.stop))

    def with_rows(self, stack: Stack, array: blocks.Rows, span: slice, new: Any) -> blocks.Rows:
        """Return a stack's array with rows replaced; ``new`` is the same in every process."""
        _refuse_tracers(array, new)
        rows = np.asarray(new).astype(array.dtype, copy=False)
        ends = (span.start, span.stop)
        return blocks.placed(
            self.shards, self.layouts[stack.name], array, lambda a, b: rows[a - span.start : b - span.start], ends
        )


def _refuse_tracers(*arrays: Any) -> None:
    if any(isinstance(array, jax.core.Tracer) for array in arrays):
        raise TypeError("on a mesh, logical tables are read and replaced on the host: do it outside of jax.jit")


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _zeros(shards: Shards, shape: tuple[int, ...], dtype: str) -> Any:
    return shards.each(lambda: jnp.zeros(shape, dtype), (), shards.split)()


def _slot(shards: Shards, layout: Layout, stack: Stack, slot: str, kind: str) -> Any:
    values = tuple(float(table.optimizer.slot_init(slot)) for table in stack.tables)
    return _slot_of(shards, layout, values, () if kind == PER_ROW else (stack.dim // layout.columns,))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))  # stacks of one layout share the program
def _slot_of(shards: Shards, layout: Layout, values: tuple[float, ...], width: tuple[int, ...]) -> Any:
    def local() -> jax.Array:
        starts = jnp.asarray(layout.local_first_rows)[shards.index]
        table = jnp.searchsorted(starts, jnp.arange(layout.local_rows, dtype=jnp.int32), side="right") - 1
        rows = jnp.asarray(values, jnp.float32).at[table].get(mode="clip")
        return jnp.broadcast_to(rows[:, None], (layout.local_rows, *width)) if width else rows

    return shards.each(local, (), shards.split)()


@functools.partial(jax.jit, static_argnums=(0, 1))
def _table_rows(shards: Shards, layout: Layout) -> Any:
    return shards.each(lambda: layout.table_rows(shards.index), (), shards.split)()
