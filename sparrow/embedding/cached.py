"""Tables in host memory: a record of each row there, and a cache of rows as the arrays on the device.

A step finds its rows in the cache, chooses who leaves, stores these, and reads the missing ones, on the device. Records
change in place, outside of what compiled programs know: only the newest state of a training is valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.embedding.batches.packing import Packer
from sparrow.embedding.dynamic.assigning import Arrays, Before, assign, find, started, undone
from sparrow.embedding.sharding.first_values import AT_ONCE, first_values
from sparrow.embedding.sharding.layout import Layout
from sparrow.embedding.sharding.on_host import HostRows
from sparrow.embedding.sharding.shards import Shards
from sparrow.embedding.specs import FeatureSpec
from sparrow.embedding.stacking import Stack
from sparrow.kernels import Backend, ids, records, stand_in
from sparrow.kernels.cuda import swap
from sparrow.rules import PER_ROW


class Cached(NamedTuple):
    """The cache of a stack; on a mesh, each device has its own.

    Attributes:
      slots: the map from rows of the stack to slots, which are rows of the arrays on the device.
      clock: (1,) int32, updates so far, made or skipped: rows that were used since the last one stay.
      address: (2,) uint32, of the records in host memory.
    """

    slots: ids.IdState
    clock: jax.Array
    address: jax.Array


class Cache:
    """The work on the cache of one stack, and its host memory, which lives as long as this object.

    On a mesh, ``layout`` says which rows each of its ``shards`` has; methods on arrays run on a shard, inside of
    `Shards.each`, and rows are local rows.
    """

    def __init__(self, stack: Stack, backend: str, shards: Shards | None = None, layout: Layout | None = None) -> None:
        self.stack, self._shards, self._places = stack, shards, layout
        self.settings = stack.cache_of_one(1 if layout is None else layout.shards)
        self._count = stack.num_rows if layout is None else layout.local_rows
        self._ids = ids.choose(backend)
        self._on_gpu = self._ids.name == "cuda"
        self._moves: Any = swap if self._on_gpu else records
        rows = self._count
        shapes = {"": stand_in((rows, stack.dim), stack.step.dtype)}
        for name, kind in stack.step.slots:
            shapes[name] = stand_in((rows,) if kind == PER_ROW else (rows, stack.dim))
        self._shapes = shapes
        self.layout = records.layout([*shapes.values()])
        self._memories: dict[bytes, Any] = {}

    def init(self, key: jax.Array) -> tuple[Arrays, Cached]:
        """Return an empty cache, and records with first values; under a trace, shapes without records."""
        arrays, held = self.begun()
        if isinstance(key, jax.core.Tracer):
            return arrays, held
        address = self.new_records(np.array(self.stack.first_rows))
        table = self.layout.views(self._records(address))[0]
        read, step = first_values(self.stack, key), max(1, AT_ONCE // self.stack.dim)
        for first in range(0, len(table), step):
            table[first : first + step] = read(first, min(first + step, len(table)))
        return arrays, held._replace(address=jnp.asarray(address))

    def begun(self) -> tuple[Arrays, Cached]:
        """Return an empty cache without records."""
        arrays = {
            name: jnp.zeros((self.settings.rows, *one.shape[1:]), one.dtype) for name, one in self._shapes.items()
        }
        return arrays, self.empty(jnp.zeros(2, jnp.uint32))

    def new_records(self, firsts: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
        """Return the address of new records, with slots at their start; ``firsts``: where each table begins."""
        memory = (swap.PinnedMemory if self._on_gpu else records.Memory)(self._count * self.layout.bytes)
        self._memories[memory.address.tobytes()] = memory
        _, *others = self.layout.views(self._records(memory.address))
        for (name, _), view in zip(self.stack.step.slots, others, strict=True):
            for spec, first, end in zip(self.stack.tables, firsts, (*firsts[1:], self._count), strict=True):
                view[first:end] = spec.optimizer.slot_init(name)
        address: npt.NDArray[np.uint32] = memory.address
        return address

    def empty(self, address: jax.Array) -> Cached:
        return Cached(ids.init(self.settings), jnp.zeros(1, jnp.int32), address)

    def assign(
        self, arrays: Arrays, held: Cached, rows: jax.Array, when: jax.Array | None
    ) -> tuple[Arrays, Cached, jax.Array]:
        """Bring rows of the stack into the cache; (N,) int32 besides: their slots."""
        segments = self._tables(rows)
        if when is not None:
            segments = jnp.where(when, segments, -1)
        made = self._ids.assign(self.settings, held.slots, _words(rows), segments, held.clock[0])
        given = [arrays[name] for name in self._shapes]
        moved = self._moves.swap(self.layout, given, held.address, self._count, made.fresh, made.gone)
        return dict(zip(self._shapes, moved, strict=True)), held._replace(slots=made.state), made.rows

    def find(self, held: Cached, rows: jax.Array) -> jax.Array:
        """(N,) int32: the slots of rows of the stack; the number of slots for a row that has none."""
        return self._ids.find(self.settings, held.slots, _words(rows), self._tables(rows), held.clock[0])

    def read(self, table: jax.Array, held: Cached, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(N, dim): rows of the stack, wherever they are, and the number of each among them. Nothing changes."""
        slots = self.find(held, rows)
        made: jax.Array = self._moves.read(self.layout, table, held.address, self._count, rows, slots)
        there, numbers = (rows >= 0) & (rows < self._count), jnp.arange(len(rows), dtype=jnp.int32)
        return made, jnp.where(there, numbers, len(rows))

    def table_rows(self, held: Cached) -> jax.Array:
        """(slots,) int32: the number that each cached row has in its own table."""
        rows = held.slots.ids[:, 0].astype(jnp.int32)
        logical = rows if self._places is None else self._places.logical(self._shard, rows, jnp)
        return logical - jnp.asarray(np.array(self.stack.first_rows, np.int32))[self._tables(rows)]

    def views(self, arrays: Arrays, held: Cached) -> dict[str, Any]:
        """Return table and slots with all rows, views of the records; shapes, where the state has no records."""
        if not isinstance(held.address, jax.Array):
            return dict(self._shapes)
        if isinstance(held.address, jax.core.Tracer):
            raise TypeError("tables in host memory are read and replaced on the host: do it outside of jax.jit")
        store = self._store if self._shards is None else self._shards.each(self._store, *[self._shards.split] * 2)
        done = jax.jit(store)(arrays, held)
        jax.block_until_ready(done)  # type: ignore[no-untyped-call]
        return dict(zip(self._shapes, self._views(held.address), strict=True))

    def _views(self, address: jax.Array) -> Sequence[Any]:
        if self._shards is None:
            return self.layout.views(self._records(np.asarray(address)))
        own = sorted(address.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        by_shard = [self.layout.views(self._records(np.asarray(shard.data))) for shard in own]
        return [HostRows(self._shards, views) for views in zip(*by_shard, strict=True)]

    def moved(self, totals: npt.NDArray[np.uint32], clock: npt.NDArray[np.int32]) -> tuple[float, float]:
        """Return the bytes of rows that a step has read from host memory and stored there, on average.

        ``totals``: (devices, segments, 5, 2) of the maps. ``clock``: (devices, 1).
        """
        rows = ids.numbers_of(totals[:, :, :2]).sum(axis=(0, 1)) * self.layout.bytes  # admitted, evicted
        steps = max(int(clock.max()), 1)
        return float(rows[0]) / steps, float(rows[1]) / steps

    def _store(self, arrays: Arrays, held: Cached) -> jax.Array:
        slots = jnp.arange(self.settings.rows, dtype=jnp.int32)
        ends = jnp.array([segment.end for segment in self.settings.segments], jnp.int32)
        there = jnp.where(held.slots.last >= 0, slots, self.settings.rows)
        every = ids.Changed(there, held.slots.ids, ends)
        given = [arrays[name] for name in self._shapes]
        made: jax.Array = self._moves.store(self.layout, given, held.address, self._count, every)
        return made

    def _records(self, address: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
        memory = self._memories.get(address.tobytes())
        if memory is None:
            raise ValueError("this state was made by another Embedder, which has its tables in host memory")
        made: npt.NDArray[np.uint8] = memory.array.reshape(self._count, self.layout.bytes)
        return made

    def _tables(self, rows: jax.Array) -> jax.Array:
        """(N,) int32: the number of each row's table in the stack, -1 past the last row."""
        tables = jnp.zeros_like(rows)
        firsts: Any = self.stack.first_rows
        if self._places is not None:
            firsts = jnp.asarray(self._places.local_first_rows)[self._shard]
        for first in firsts[1:]:
            tables += rows >= first
        return jnp.where((rows >= 0) & (rows < self._count), tables, -1)

    @property
    def _shard(self) -> jax.Array:
        assert self._shards is not None
        return self._shards.index


class OwnRows:
    """The work on the rows of one device that a device does by itself: on a mesh, inside of `Shards.each`."""

    def __init__(
        self,
        features: Sequence[FeatureSpec],
        stacks: Sequence[Stack],
        backends: Mapping[str, Backend],
        shards: Shards | None = None,
        layouts: Mapping[str, Layout] = MappingProxyType({}),
    ) -> None:
        self.features, self.stacks, self.backends = features, stacks, backends
        self.packer = Packer(features, stacks)
        self.limits = {feature.name: feature.table_spec.optimizer.max_gradient for feature in features}
        self.caches = {
            stack.name: Cache(stack, backends[stack.name].name, shards, layouts.get(stack.name))
            for stack in stacks
            if stack.apart
        }

    def id_settings(self, stack: Stack) -> ids.Settings:
        """Return the settings of the map of each device."""
        return stack.ids

    def assign_own(
        self,
        stacks: Sequence[Stack],
        parts: Sequence[dict[str, Any]],
        raw: Mapping[str, jax.Array],
        rows: Mapping[str, jax.Array],
        numbers: tuple[jax.Array, jax.Array, jax.Array | None],
    ) -> tuple[dict[str, jax.Array], dict[str, Before]]:
        """Give rows to raw ids, bring rows in host memory to the device, and start fresh ones.

        Return by stack the rows of its arrays, and what undoes the ids.

        Args:
          stacks: the stacks.
          parts: tables, slots, maps and caches by stack, which are replaced.
          raw: by dynamic stack, (N, 2) uint32.
          rows: by stack, (N,) int32: rows, or the tables of raw ids.
          numbers: the step, the seed, and whether anything changes.
        """
        (tables, slots, maps, caches), (step, seed, when) = parts, numbers
        found: dict[str, jax.Array] = {}
        undo: dict[str, Before] = {}
        for stack in stacks:
            name, own, backend, cache = (
                stack.name,
                rows[stack.name],
                self.backends[stack.name],
                self.caches.get(stack.name),
            )
            arrays, words, made = {"": tables[name], **slots[name]}, raw.get(name), None
            if words is not None:
                made = assign(self.id_settings(stack), backend.name, maps[name], words, own, step, when)
                maps[name], own = made.state, made.rows
            if cache is not None:
                arrays, caches[name], own = cache.assign(arrays, caches[name], own, when)
            if made is not None and words is not None:
                fresh = made.fresh
                if cache is not None:  # where its rows do not fit into the cache, no id is admitted
                    short = caches[name].slots.short.max() > 0
                    maps[name] = ids.choose(backend.name).undone(
                        self.id_settings(stack), maps[name], made.undo, words, short
                    )
                    slot = cache.find(caches[name], fresh.rows)
                    fresh = fresh._replace(rows=jnp.where(short, cache.settings.rows, slot))
                arrays, values = started(stack, arrays, seed, fresh, backend.name)
                undo[name] = Before(words, made.undo, fresh, values)
            tables[name], slots[name], found[name] = arrays.pop(""), arrays, own
        return found, undo

    def undo_own(self, parts: Sequence[dict[str, Any]], undo: Mapping[str, Before], when: jax.Array) -> None:
        """Put tables, slots and maps back as they were before `assign_own`, where ``when`` is true."""
        tables, slots, maps = parts
        for stack in self.stacks:
            if (name := stack.name) in undo:
                arrays = {"": tables[name], **slots[name]}
                given = self.id_settings(stack), self.backends[name].name, maps[name], arrays
                maps[name], arrays = undone(*given, undo[name], when)
                tables[name], slots[name] = arrays.pop(""), arrays

    def find_own(self, stack: Stack, maps: Any, words: jax.Array, tables: jax.Array, step: jax.Array) -> jax.Array:
        """(N,) int32: the rows of raw ids of a dynamic stack; nothing changes."""
        return find(self.id_settings(stack), self.backends[stack.name].name, maps[stack.name], words, tables, step)

    def arrays(self, state: Any, stack: Stack) -> dict[str, Any]:
        """Return the table of a stack under "", and its slots, with all rows; on the host, where they are there."""
        held = {"": state.tables[stack.name], **state.slots[stack.name]}
        return self.caches[stack.name].views(held, state.caches[stack.name]) if stack.apart else held


def _words(rows: jax.Array) -> jax.Array:
    return jnp.stack([rows.astype(jnp.uint32), jnp.zeros_like(rows, jnp.uint32)], -1)
