"""Tables in host memory: a record of each row there, and a cache of rows as the arrays on the device.

A step finds its rows in the cache, chooses who leaves, and reads the missing ones, on the device. Rows that leave are
stored beside the rest of the step, and rows of the next step come beside it, where the loop has its batch. Records
change in place, outside of what compiled programs know: only the newest state of a training is valid.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.embedding.dynamic.assigning import Arrays
from sparrow.embedding.sharding.first_values import AT_ONCE, first_values
from sparrow.embedding.stacking import Stack
from sparrow.kernels import ids, records, stand_in
from sparrow.kernels.cuda import swap
from sparrow.rules import PER_ROW


class Cached(NamedTuple):
    """The cache of a stack.

    Attributes:
      slots: the map from rows of the stack to slots, which are rows of the arrays on the device.
      clock: () int32, updates so far, made or skipped: rows that were used since the last one stay.
      address: (2,) uint32, of the records in host memory.
    """

    slots: ids.IdState
    clock: jax.Array
    address: jax.Array


class Cache:
    """The work on the cache of one stack, and its host memory, which lives as long as this object."""

    def __init__(self, stack: Stack, backend: str) -> None:
        self.stack, self.settings = stack, stack.cache
        self._ids = ids.choose(backend)
        self._on_gpu = self._ids.name == "cuda"
        self._moves: Any = swap if self._on_gpu else records
        rows = stack.num_rows
        shapes = {"": stand_in((rows, stack.dim), stack.step.dtype)}
        for name, layout in stack.step.slots:
            shapes[name] = stand_in((rows,) if layout == PER_ROW else (rows, stack.dim))
        self._shapes = shapes
        self.layout = records.layout([*shapes.values()])
        self._memories: dict[bytes, Any] = {}

    def init(self, key: jax.Array) -> tuple[Arrays, Cached]:
        """Return an empty cache, and records with first values; under a trace, shapes without records."""
        arrays = {
            name: jnp.zeros((self.settings.rows, *one.shape[1:]), one.dtype) for name, one in self._shapes.items()
        }
        if isinstance(key, jax.core.Tracer):
            return arrays, self.empty(jnp.zeros(2, jnp.uint32))
        memory = (swap.PinnedMemory if self._on_gpu else records.Memory)(self.stack.num_rows * self.layout.bytes)
        self._memories[memory.address.tobytes()] = memory
        table, *others = self.layout.views(self._records(memory.address))
        read, step = first_values(self.stack, key), max(1, AT_ONCE // self.stack.dim)
        for first in range(0, len(table), step):
            table[first : first + step] = read(first, min(first + step, len(table)))
        for (name, _), view in zip(self.stack.step.slots, others, strict=True):
            for spec in self.stack.tables:
                view[self.stack.rows_of(spec.name)] = spec.optimizer.slot_init(name)
        return arrays, self.empty(jnp.asarray(memory.address))

    def empty(self, address: jax.Array) -> Cached:
        return Cached(ids.init(self.settings), jnp.zeros((), jnp.int32), address)

    def assign(
        self, arrays: Arrays, held: Cached, rows: jax.Array, when: jax.Array | None
    ) -> tuple[Arrays, Cached, jax.Array]:
        """Bring rows of the stack into the cache; (N,) int32 besides: their slots."""
        segments = self._tables(rows)
        if when is not None:
            segments = jnp.where(when, segments, -1)
        made = self._ids.assign(self.settings, held.slots, _words(rows), segments, held.clock)
        given = [arrays[name] for name in self._shapes]
        moved = self._moves.swap(self.layout, given, held.address, self.stack.num_rows, made.fresh, made.gone)
        return dict(zip(self._shapes, moved, strict=True)), held._replace(slots=made.state), made.rows

    def find(self, held: Cached, rows: jax.Array) -> jax.Array:
        """(N,) int32: the slots of rows of the stack; the number of slots for a row that has none."""
        return self._ids.find(self.settings, held.slots, _words(rows), self._tables(rows), held.clock)

    def read(self, table: jax.Array, held: Cached, rows: jax.Array) -> jax.Array:
        """(N, dim): rows of the stack, wherever they are; nothing changes."""
        slots = self.find(held, rows)
        made: jax.Array = self._moves.read(self.layout, table, held.address, self.stack.num_rows, rows, slots)
        return made

    def table_rows(self, held: Cached) -> jax.Array:
        """(slots,) int32: the number that each cached row has in its own table."""
        rows = held.slots.ids[:, 0].astype(jnp.int32)
        return rows - jnp.asarray(np.array(self.stack.first_rows, np.int32))[self._tables(rows)]

    def views(self, arrays: Arrays, held: Cached) -> dict[str, Any]:
        """Return table and slots with all rows, views of the records; shapes, where the state has no records."""
        if not isinstance(held.address, jax.Array):
            return dict(self._shapes)
        if isinstance(held.address, jax.core.Tracer):
            raise TypeError("tables in host memory are read and replaced on the host: do it outside of jax.jit")
        done = jax.jit(self._store)(arrays, held)
        jax.block_until_ready(done)  # type: ignore[no-untyped-call]
        return dict(zip(self._shapes, self.layout.views(self._records(np.asarray(held.address))), strict=True))

    def moved(self, held: Cached) -> tuple[float, float]:
        """Return the bytes of rows that a step has read from host memory and stored there, on average. Waits."""
        totals, clock = jax.device_get((held.slots.totals, held.clock))
        rows = ids.numbers_of(totals[:, :2]).sum(axis=0) * self.layout.bytes / max(int(clock), 1)  # admitted, evicted
        return float(rows[0]), float(rows[1])

    def _store(self, arrays: Arrays, held: Cached) -> jax.Array:
        slots = jnp.arange(self.settings.rows, dtype=jnp.int32)
        ends = jnp.array([segment.end for segment in self.settings.segments], jnp.int32)
        there = jnp.where(held.slots.last >= 0, slots, self.settings.rows)
        every = ids.Changed(there, held.slots.ids, ends)
        given = [arrays[name] for name in self._shapes]
        made: jax.Array = self._moves.store(self.layout, given, held.address, self.stack.num_rows, every)
        return made

    def _records(self, address: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
        memory = self._memories.get(address.tobytes())
        if memory is None:
            raise ValueError("this state was made by another Embedder, which has its tables in host memory")
        made: npt.NDArray[np.uint8] = memory.array.reshape(self.stack.num_rows, self.layout.bytes)
        return made

    def _tables(self, rows: jax.Array) -> jax.Array:
        """(N,) int32: the number of each row's table in the stack, -1 past the last row."""
        tables = jnp.zeros_like(rows)
        for first in self.stack.first_rows[1:]:
            tables += rows >= first
        return jnp.where((rows >= 0) & (rows < self.stack.num_rows), tables, -1)


def _words(rows: jax.Array) -> jax.Array:
    return jnp.stack([rows.astype(jnp.uint32), jnp.zeros_like(rows, jnp.uint32)], -1)
