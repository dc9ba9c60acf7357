"""`OnMesh`: the Embedder's work with the rows of every stack spread over the devices of a mesh."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.embedding.bags import activations, bag_grads
from sparrow.embedding.dynamic.assigning import assign, find
from sparrow.embedding.dynamic.first_rows import started
from sparrow.embedding.dynamic.saved import Placing
from sparrow.embedding.guards import undifferentiable
from sparrow.embedding.one_device import OneDevice, Stacked, seed_of
from sparrow.embedding.packed_batch import Group, PackedBatch
from sparrow.embedding.packing import Measured, Packer, room_name
from sparrow.embedding.row_grads import RowGrads
from sparrow.embedding.sharding import blocks
from sparrow.embedding.sharding.elements import Elements, elements_of, with_elements
from sparrow.embedding.sharding.first_values import first_values
from sparrow.embedding.sharding.layout import Layout
from sparrow.embedding.sharding.measured import DISTINCT, POOLED, ROWS, SUMS, Routed, RoutedBatch, chosen, route
from sparrow.embedding.sharding.parts import split, split_groups
from sparrow.embedding.sharding.raw_parts import stand_in_layout, with_stand_ins
from sparrow.embedding.sharding.shards import EVERYWHERE, Shards, from_host
from sparrow.embedding.sharding.traffic import Traffic, traffic
from sparrow.embedding.sizes import KINDS, Sizes, size_class
from sparrow.embedding.specs import FeatureSpec
from sparrow.embedding.stacking import Stack
from sparrow.embedding.state import EmbeddingState, layout_of
from sparrow.embedding.tracking import mark
from sparrow.kernels import Backend, EntryGradients, StepScalars, ids
from sparrow.registry import nearest
from sparrow.rules import PER_ROW

EXCHANGES = ("auto", POOLED, ROWS)


class OnMesh:
    """Rows spread over shards by `Layout`; batches split over the same shards.

    Attributes:
      shards: the devices.
      layouts: where rows are, by stack.
      exchanges: by stack, "pooled" or "rows"; None: decided by the first batch that is packed.
    """

    def __init__(
        self,
        features: Sequence[FeatureSpec],
        stacks: Sequence[Stack],
        backends: Mapping[str, Backend],
        shards: Shards,
        exchange: str,
    ) -> None:
        if exchange not in EXCHANGES:
            raise ValueError(f"unknown exchange '{exchange}': {nearest(str(exchange), EXCHANGES)}")
        self.features, self.stacks, self.backends, self.shards = features, stacks, backends, shards
        self._packer = Packer(features, stacks)
        self.ordered = [feature.name for feature in features if feature.is_ordered]
        self._guess: dict[str, int] = {}  # elements of each ordered feature on a device, in the batch before
        self.limits = {feature.name: feature.table_spec.optimizer.max_gradient for feature in features}
        self.layouts = {stack.name: Layout(stack.num_rows, shards.count, stack.first_rows) for stack in stacks}
        self.exchanges: dict[str, str | None] = {
            stack.name: None if exchange == "auto" else exchange for stack in stacks
        }

    # ---- state ---------------------------------------------------------------------------------------------------

    def init(self, key: jax.Array) -> EmbeddingState:
        """Fresh tables and slots, the same values as on one device."""
        if isinstance(key, jax.core.Tracer):
            return self._init_traced(key)
        tables, slots, table_rows = {}, {}, {}
        for stack in self.stacks:
            layout, name = self.layouts[stack.name], stack.name
            zeros = _zeros(self.shards, (layout.local_rows, stack.dim), stack.step.dtype)
            read, span = first_values(stack, key), (0, stack.num_rows)
            tables[name] = blocks.placed(self.shards, layout, zeros, read, span, give_away=True)
            slots[name] = {slot: _slot(self.shards, layout, stack, slot, kind) for slot, kind in stack.step.slots}
            if stack.step.stochastic:
                table_rows[name] = _table_rows(self.shards, layout)
        step, seed = self.shards.put_everywhere((np.zeros((), np.int32), np.asarray(seed_of(key))))
        layout = self.shards.put_everywhere(layout_of(self.shards.count))
        return EmbeddingState(step, seed, tables, slots, table_rows, self._empty_ids(), layout=layout)

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
                return whole.at[rows].get(mode="fill", fill_value=0)

            made: jax.Array = self.shards.each(local, EVERYWHERE, self.shards.split)(array)
            return made

        return EmbeddingState(
            one.step,
            one.seed,
            {stack.name: spread(stack, one.tables[stack.name]) for stack in self.stacks},
            {s.name: {slot: spread(s, array) for slot, array in one.slots[s.name].items()} for s in self.stacks},
            {
                stack.name: _table_rows(self.shards, self.layouts[stack.name])
                for stack in self.stacks
                if stack.step.stochastic
            },
            self._empty_ids(),
            layout=jax.tree.map(jnp.asarray, layout_of(self.shards.count)),
        )

    # ---- ids of dynamic tables -----------------------------------------------------------------------------------

    def id_settings(self, stack: Stack) -> ids.Settings:
        """Return the settings of the map of each device: rows that all of them have, and its own row for unknown ids.

        A dynamic table is alone in its stack here.
        """
        (table,), layout = stack.tables, self.layouts[stack.name]
        own = stack.ids.segments[0]
        reserved = own.begin
        each = stack.num_rows // layout.shards
        if each <= reserved:
            raise ValueError(
                f"table '{table.name}' has {stack.num_rows} rows, too few for {layout.shards} devices; give it more"
            )
        waiting = -(-own.waiting // layout.shards)
        unknown = 0 if reserved else layout.local_rows
        segment = own._replace(begin=reserved, end=each, unknown=unknown, waiting=waiting)
        return ids.settings([segment], layout.local_rows)

    def placing(self, stack: Stack, table: str) -> Placing:
        """Return the places of a table's ids."""
        layout, spec = self.layouts[stack.name], stack.tables[0]
        return Placing(
            spec,
            stack.rows_of(table),
            self.id_settings(stack),
            0,
            layout.shards,
            lambda part, rows: layout.logical(part, rows),
        )

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

    def assign(
        self, state: EmbeddingState, batch: PackedBatch, stacked: Stacked, when: jax.Array | None
    ) -> tuple[EmbeddingState, PackedBatch]:
        """Give rows to the raw ids of a batch, each at its owner."""
        batch = self.exchange(batch)
        stacks = [stack for stack, _ in stacked if stack.name in batch.raw]

        def local(tables: Any, slots: Any, held: Any, lookups: Any, raw: Any, numbers: Any) -> Any:
            step, seed, go = numbers
            for stack in stacks:
                name = stack.name
                wanted = lookups[name].wanted
                given: Any = (raw[name].reshape(-1, 2), wanted.reshape(-1), step, go)
                backend = self.backends[name].name
                made = assign(self.id_settings(stack), backend, held[name], *given)
                arrays = started(stack, {"": tables[name], **slots[name]}, seed, made.fresh, backend)
                held[name], tables[name] = made.state, arrays.pop("")
                slots[name] = arrays
                lookups[name] = lookups[name].with_wanted(made.rows.reshape(wanted.shape))
            return tables, slots, held, lookups

        names = [stack.name for stack in stacks]
        parts = [
            {name: whole[name] for name in names} for whole in (state.tables, state.slots, state.ids, batch.lookups)
        ]
        split = self.shards.split
        numbers = (state.step, state.seed, jnp.array(True) if when is None else when)
        tables, slots, held, lookups = self.shards.each(local, (*[split] * 5, EVERYWHERE), split)(
            *parts, batch.raw, numbers
        )
        state = dataclasses.replace(
            state, tables=state.tables | tables, slots=state.slots | slots, ids=state.ids | held
        )
        return state, dataclasses.replace(batch, lookups=batch.lookups | lookups, raw={})

    def _found(self, state: EmbeddingState, batch: PackedBatch) -> dict[str, Any]:
        """Return the lookups of a batch, exchanged, with local rows in place of raw ids, as the maps have them now."""
        if not batch.raw:
            return batch.lookups
        stacks = {stack.name: stack for stack in self.stacks}

        def local(held: Any, lookups: Any, raw: Any, step: jax.Array) -> Any:
            made = {}
            for name, words in raw.items():
                wanted, settings = lookups[name].wanted, self.id_settings(stacks[name])
                backend = self.backends[name].name
                rows = find(settings, backend, held[name], words.reshape(-1, 2), wanted.reshape(-1), step)
                made[name] = lookups[name].with_wanted(rows.reshape(wanted.shape))
            return made

        split = self.shards.split
        parts = [{name: whole[name] for name in batch.raw} for whole in (state.ids, batch.lookups)]
        call: Any = self.shards.each(local, (split, split, split, EVERYWHERE), split)
        found: dict[str, Any] = call(*parts, batch.raw, state.step)
        return batch.lookups | found

    def arrays(self, state: EmbeddingState, stack: Stack) -> dict[str, Any]:
        """Return the table of a stack under "", and its slots."""
        return {"": state.tables[stack.name], **state.slots[stack.name]}

    def without_caches(self, state: EmbeddingState) -> EmbeddingState:
        """Return the state: no table is apart from the devices."""
        return state

    def no_rows(self, stack: Stack) -> jax.Array:
        """Return the bytes of a stack's rows, none of them marked."""
        zeros: jax.Array = _zeros(self.shards, (self.layouts[stack.name].local_rows,), "uint8")
        return zeros

    def marked(self, state: EmbeddingState, rows: Mapping[str, jax.Array]) -> EmbeddingState:
        """Return the state with rows marked as changed, each at its owner."""
        split = self.shards.split
        touched = self.shards.each(mark, (split, split), split)(state.touched, rows)
        return dataclasses.replace(state, touched=touched)

    def assigned_rows(self, batch: PackedBatch, names: Sequence[str]) -> dict[str, jax.Array]:
        """Return the rows that `assign` gave, by stack."""
        lookups: Any = batch.lookups
        return {name: lookups[name].wanted for name in names}

    def cache_traffic(self, state: EmbeddingState) -> dict[str, float]:
        """Return nothing: no table is apart from the devices."""
        return {}

    def rows(self, stack: Stack, array: jax.Array, span: slice) -> Any:
        """Rows of a stack's array in logical order, as a NumPy array: no device may have room for them."""
        _refuse_tracers(array)
        return blocks.gathered(self.shards, self.layouts[stack.name], array, (span.start, span.stop))

    def with_rows(self, stack: Stack, array: jax.Array, span: slice, new: Any) -> jax.Array:
        """Return a stack's array with rows replaced; ``new`` is the same in every process."""
        _refuse_tracers(array, new)
        rows = np.asarray(new).astype(array.dtype, copy=False)
        ends = (span.start, span.stop)
        return blocks.placed(
            self.shards, self.layouts[stack.name], array, lambda a, b: rows[a - span.start : b - span.start], ends
        )

    # ---- batches -------------------------------------------------------------------------------------------------

    def pack(
        self, inputs: Mapping[str, Any], capacity: int | Mapping[str, int] | None, sizes: Sizes | None
    ) -> PackedBatch:
        """Check, route and lay out this process's examples, an equal number for each of its shards, in order."""
        if sizes is not None:
            self.adopt(sizes.learned.held)
        measured = self.measure(inputs, capacity)
        needs = measured.needs
        if self.shards.processes > 1:
            agree = _largest if sizes is None or sizes.agree is None else sizes.agree
            needs = agree(needs)
        loose = self.settle(needs)
        if capacity is not None:  # room for all ids of a device at one owner: the same shapes for every batch
            most = {name: measured.capacity.get(name.rpartition("/")[0]) for name in loose}
            room = {name: max(need, most[name] or size_class(need)) for name, need in loose.items()}
        elif sizes is not None:
            room = sizes.fit(loose)
        else:
            room = {name: size_class(need) for name, need in loose.items()}
        return measured.pack(room)

    def measure(self, inputs: Mapping[str, Any], capacity: int | Mapping[str, int] | None = None) -> RoutedBatch:
        """Check and route this process's examples: the first half of `pack`. Waits for no other process."""
        counted = self._packer.measure(inputs, capacity)
        parts = len(self.shards.local)
        if not parts:
            raise ValueError("this process holds no device of the mesh, so that it has no part of a batch to pack")
        elements = elements_of(counted, parts)
        # The sizes of the batch before are a good guess; another size takes the time of routing again.
        sizes = {name: held.size or max(held.most, self._guess.get(name, 0)) for name, held in elements.items()}
        return self._routed(counted, elements, sizes)

    def _routed(self, counted: Measured, elements: Mapping[str, Elements], sizes: Mapping[str, int]) -> RoutedBatch:
        """Route a batch with as many elements of each ordered feature on every device."""
        self._guess.update(sizes)
        parts = len(self.shards.local)
        packed = with_elements(counted, elements, sizes).pack(counted.loose)  # without padding
        groups = tuple((name, split_groups(of_stack, parts)) for name, of_stack in packed.groups)
        made: dict[Any, Routed] = {}  # stacks that are read with the same ids share their routes
        routed = {}
        for stack, (name, of_stack) in zip(self.stacks, packed.groups, strict=True):
            lookups, choice = packed.lookups[name], self.exchanges[name]
            alike = (id(lookups), stack.num_rows, choice)
            if stack.is_dynamic:
                numbered = dataclasses.replace(lookups, ids=np.arange(len(lookups.ids), dtype=np.int32))  # type: ignore[arg-type]
                own = split(numbered, of_stack, parts)
                layout = stand_in_layout(self.shards.count)
                own, raw = with_stand_ins(layout, own, np.asarray(lookups.ids), packed.raw[name])
                made[alike] = dataclasses.replace(route(layout, own, choice), raw=raw)
            elif alike not in made:
                made[alike] = route(self.layouts[name], split(lookups, of_stack, parts), choice)
            routed[name] = made[alike]
        room = {name: len(lookups.ids) for name, lookups in packed.lookups.items()}
        again = functools.partial(self._routed, counted, elements)
        put = self.shards.put_parts
        return RoutedBatch(self.layouts, routed, groups, self.settle, put, room, elements, sizes, again, self.shards)

    def traffic(self, batch: RoutedBatch, room: Mapping[str, int]) -> dict[str, Traffic]:
        """Return what a measured batch sends, by stack, once it is packed with ``room``."""
        return traffic(batch, room, {stack.name: stack.dim for stack in self.stacks})

    def settle(self, needs: npt.NDArray[np.int32]) -> dict[str, int]:
        """Agreed needs by name, after choosing the exchange of each stack that has none yet."""
        by_name: dict[str, int] = {}
        of_stacks, elements = np.split(np.asarray(needs), [len(KINDS) * len(self.stacks)])
        for stack, numbers in zip(self.stacks, of_stacks.reshape(-1, len(KINDS)), strict=True):
            of_stack = dict(zip(KINDS, map(int, numbers), strict=True))
            if self.exchanges[stack.name] is None:
                self.exchanges[stack.name] = chosen(of_stack)
            unused = KINDS[2:4] if self.exchanges[stack.name] == POOLED else KINDS[:2]
            by_name |= {f"{stack.name}/{kind}": n for kind, n in of_stack.items() if n and kind not in unused}
        return by_name | {room_name(name): int(n) for name, n in zip(self.ordered, elements, strict=True) if n}

    @property
    def num_needs(self) -> int:
        """The length of the vector that `settle` takes."""
        return len(KINDS) * len(self.stacks) + len(self.ordered)

    def adopt(self, held: Mapping[str, int]) -> None:
        """Take the exchanges of an earlier run from the sizes that it has learned."""
        for name, choice in self.exchanges.items():
            for kind, exchange in ((SUMS, POOLED), (DISTINCT, ROWS)):
                if choice is None and f"{name}/{kind}" in held:
                    self.exchanges[name] = exchange

    def batch_size(self, group: Group) -> int:
        """Examples of a group in the whole batch, over all processes."""
        return group.num_bags * self.shards.count

    # ---- the step ------------------------------------------------------------------------------------------------

    def exchange(self, batch: PackedBatch) -> PackedBatch:
        """Return the batch with its ids at the owners of their rows."""
        if all(lookups.exchanged for lookups in batch.lookups.values()):  # type: ignore[attr-defined]
            return batch

        def local(lookups: Any, raw: Any) -> Any:
            sent = {name: one if one.exchanged else one.exchange(self.shards) for name, one in lookups.items()}
            return sent, {name: self.shards.swap(words) for name, words in raw.items()}

        moved, raw = self.shards.each(local, self.shards.split, self.shards.split)(batch.lookups, batch.raw)
        return dataclasses.replace(batch, lookups=moved, raw=raw)

    def lookup(
        self, state: EmbeddingState, batch: PackedBatch, stacked: Stacked, dtype: Any, *, sort: bool
    ) -> tuple[dict[str, jax.Array], PackedBatch]:
        """Activations by feature, split over the shards; and the batch, exchanged, with the order of its entries."""

        def local(tables: dict[str, jax.Array], lookups: Any) -> Any:
            made: dict[str, jax.Array] = {}
            kept = {}
            for stack, groups in stacked:
                name = stack.name
                rows, kept[name] = lookups[name].lookup(
                    self.shards, self.backends[name], tables[name], dtype, sort and not stack.frozen
                )
                made |= activations(groups, rows)
            return made, kept

        tables = {stack.name: undifferentiable(state.tables[stack.name]) for stack in self.stacks}
        split = self.shards.split
        batch = self.exchange(batch)
        acts, lookups = self.shards.each(local, split, split)(tables, self._found(state, batch))
        without_rows = {name: batch.lookups[name] for name in batch.raw}  # for an update, they must be assigned
        return acts, dataclasses.replace(batch, lookups=lookups | without_rows)

    def row_grads(self, batch: PackedBatch, act_grads: Mapping[str, jax.Array], stacked: Stacked) -> RowGrads:
        """Return the gradient of every table, at the owners of the rows."""

        def local(lookups: Any, act_grads: dict[str, jax.Array]) -> dict[str, EntryGradients]:
            made = {}
            for stack, groups in stacked:
                grads = bag_grads(groups, act_grads, self.limits, stack.dim)
                made[stack.name] = lookups[stack.name].row_grads(self.shards, self.backends[stack.name], grads)
            return made

        split = self.shards.split
        stacks = self.shards.each(local, split, split)(self.exchange(batch).lookups, dict(act_grads))
        rows = tuple((stack.name, self.layouts[stack.name].local_rows) for stack in self.stacks)
        return RowGrads(stacks, rows, self.shards)

    def apply(
        self, state: EmbeddingState, grads: RowGrads, logical_rows: Mapping[str, jax.Array] | None
    ) -> EmbeddingState:
        """One optimizer step, each row at its owner."""
        if logical_rows:
            raise ValueError("logical_rows are the mesh's own here; leave them out")
        trained = [stack for stack in self.stacks if not stack.frozen]

        def local(tables: Any, slots: Any, grads: Any, scalars: Any, table_rows: Any) -> Any:
            new_tables, new_slots = {}, {}
            for stack in trained:
                name = stack.name
                first_rows = jnp.asarray(self.layouts[name].local_first_rows)[self.shards.index]
                hyper, seeds = scalars[name]
                new_tables[name], updated = self.backends[name].update(
                    stack.step,
                    tables[name],
                    tuple(slots[name][slot] for slot, _ in stack.step.slots),
                    grads[name],
                    StepScalars(hyper, seeds, first_rows, table_rows.get(name)),
                )
                new_slots[name] = {slot: one for (slot, _), one in zip(stack.step.slots, updated, strict=True)}
            return new_tables, new_slots

        def of_trained(by_stack: Mapping[str, Any]) -> dict[str, Any]:
            return {stack.name: by_stack[stack.name] for stack in trained if stack.name in by_stack}

        scalars = {stack.name: stack.scalars(state.step, state.seed)[:2] for stack in trained}
        split = self.shards.split
        tables, slots = self.shards.each(local, (split, split, split, EVERYWHERE, split), (split, split))(
            of_trained(state.tables), of_trained(state.slots), of_trained(grads.stacks), scalars, state.table_rows
        )
        return dataclasses.replace(state, step=state.step + 1, tables=state.tables | tables, slots=state.slots | slots)


def _largest(needs: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return the largest needs of all processes; all call this together, from the thread of their other collectives."""
    from jax.experimental import multihost_utils

    gathered: npt.NDArray[np.int32] = np.asarray(multihost_utils.process_allgather(needs))
    most: npt.NDArray[np.int32] = gathered.reshape(-1, len(needs)).max(axis=0)
    return most


def _refuse_tracers(*arrays: Any) -> None:
    if any(isinstance(array, jax.core.Tracer) for array in arrays):
        raise TypeError("on a mesh, logical tables are read and replaced on the host: do it outside of jax.jit")


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _zeros(shards: Shards, shape: tuple[int, ...], dtype: str) -> jax.Array:
    made: jax.Array = shards.each(lambda: jnp.zeros(shape, dtype), (), shards.split)()
    return made


def _slot(shards: Shards, layout: Layout, stack: Stack, slot: str, kind: str) -> jax.Array:
    values = tuple(float(table.optimizer.slot_init(slot)) for table in stack.tables)
    made: jax.Array = _slot_of(shards, layout, values, () if kind == PER_ROW else (stack.dim,))
    return made


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))  # stacks of one layout share the program
def _slot_of(shards: Shards, layout: Layout, values: tuple[float, ...], width: tuple[int, ...]) -> jax.Array:
    def local() -> jax.Array:
        starts = jnp.asarray(layout.local_first_rows)[shards.index]
        table = jnp.searchsorted(starts, jnp.arange(layout.local_rows, dtype=jnp.int32), side="right") - 1
        rows = jnp.asarray(values, jnp.float32).at[table].get(mode="clip")
        return jnp.broadcast_to(rows[:, None], (layout.local_rows, *width)) if width else rows

    made: jax.Array = shards.each(local, (), shards.split)()
    return made


@functools.partial(jax.jit, static_argnums=(0, 1))
def _table_rows(shards: Shards, layout: Layout) -> jax.Array:
    made: jax.Array = shards.each(lambda: layout.table_rows(shards.index), (), shards.split)()
    return made
