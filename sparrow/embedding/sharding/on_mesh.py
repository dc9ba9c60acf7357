"""`OnMesh`: the Embedder's work with the rows of every stack placed on the devices of a mesh."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.embedding.batches.packing import Measured, size_name
from sparrow.embedding.batches.sizes import KINDS, Sizes, size_class
from sparrow.embedding.guards import undifferentiable
from sparrow.embedding.one_device import Stacked
from sparrow.embedding.packed_batch import Group, PackedBatch, activations, bag_grads
from sparrow.embedding.row_grads import RowGrads
from sparrow.embedding.sharding.complete_rows import is_by_element, updated
from sparrow.embedding.sharding.exchange import Exchange
from sparrow.embedding.sharding.measured import COPIES, DISTINCT, POOLED, ROWS, SUMS, Routed, RoutedBatch, chosen, route
from sparrow.embedding.sharding.mesh_state import MeshState
from sparrow.embedding.sharding.parts import Elements, split, split_groups, stand_in_layout, with_stand_ins
from sparrow.embedding.sharding.placement import Place, layout_of
from sparrow.embedding.sharding.shards import EVERYWHERE, Shards
from sparrow.embedding.sharding.traffic import Traffic, traffic
from sparrow.embedding.specs import FeatureSpec
from sparrow.embedding.stacking import Stack
from sparrow.embedding.state import EmbeddingState
from sparrow.kernels import Backend, EntryGradients, StepScalars

EXCHANGES = ("auto", POOLED, ROWS)


class OnMesh(MeshState):
    """Rows placed by `Layout`; batches split over all devices.

    Attributes:
      exchanges: by stack, "pooled", "rows" or "copies"; None: decided by the first batch that is packed.
    """

    def __init__(
        self,
        features: Sequence[FeatureSpec],
        stacks: Sequence[Stack],
        backends: Mapping[str, Backend],
        shards: Shards,
        places: Mapping[str, Place],
        exchange: str,
    ) -> None:
        self.shards, self.places = shards, places
        self.layouts = {stack.name: layout_of(stack, places, shards.count) for stack in stacks}
        super().__init__(features, stacks, backends, shards, self.layouts)
        self.ordered = [feature.name for feature in features if feature.is_ordered]
        self._guess: dict[str, int] = {}  # elements of each ordered feature on a device, in the batch before
        self._table_of = {feature.name: feature.table_spec.name for feature in features}
        choice = None if exchange == "auto" else exchange
        self.exchanges: dict[str, str | None] = {
            name: COPIES if layout.copies else choice for name, layout in self.layouts.items()
        }

    def assign(
        self, state: EmbeddingState, batch: PackedBatch, stacked: Stacked, when: jax.Array | None
    ) -> tuple[EmbeddingState, PackedBatch]:
        """Give rows to the raw ids of a batch, and bring rows in host memory to the device, each at its owner."""
        batch = self.exchange(batch)
        stacks = [stack for stack, _ in stacked if stack.name in batch.raw or stack.apart]

        def local(tables: Any, slots: Any, held: Any, caches: Any, lookups: Any, raw: Any, numbers: Any) -> Any:
            wanted = {stack.name: lookups[stack.name].wanted for stack in stacks}
            rows = {name: own.reshape(-1) for name, own in wanted.items()}
            words = {name: own.reshape(-1, 2) for name, own in raw.items()}
            found, undo = self.assign_own(stacks, (tables, slots, held, caches), words, rows, numbers)
            lookups = {name: lookups[name].with_wanted(own.reshape(wanted[name].shape)) for name, own in found.items()}
            return tables, slots, held, caches, lookups, jax.tree.map(lambda array: array[None], undo)

        parts = _of(stacks, state.tables, state.slots, state.ids, state.caches, batch.lookups)
        split = self.shards.split
        numbers = (state.step, state.seed, jnp.array(True) if when is None else when)
        tables, slots, held, caches, lookups, undo = self.shards.each(local, (*[split] * 6, EVERYWHERE), split)(
            *parts, batch.raw, numbers
        )
        state = dataclasses.replace(
            state,
            tables=state.tables | tables,
            slots=state.slots | slots,
            ids=state.ids | held,
            caches=state.caches | caches,
        )
        cached = tuple(caches)
        return state, dataclasses.replace(batch, lookups=batch.lookups | lookups, raw={}, cached=cached, undo=undo)

    def undone(self, state: EmbeddingState, batch: PackedBatch, when: jax.Array) -> EmbeddingState:
        """Return the state as it was before the ids of a batch were assigned, where ``when`` is true."""
        stacks = [stack for stack in self.stacks if stack.name in batch.undo]

        def local(tables: Any, slots: Any, held: Any, undo: Any, when: jax.Array) -> Any:
            self.undo_own((tables, slots, held), jax.tree.map(lambda array: array[0], undo), when)
            return tables, slots, held

        parts, split = _of(stacks, state.tables, state.slots, state.ids), self.shards.split
        tables, slots, held = self.shards.each(local, (*[split] * 4, EVERYWHERE), split)(*parts, batch.undo, when)
        return dataclasses.replace(state, tables=state.tables | tables, slots=state.slots | slots, ids=state.ids | held)

    def _found(self, state: EmbeddingState, batch: PackedBatch) -> dict[str, Any]:
        """Return the lookups of a batch, exchanged, with local rows in place of raw ids, as the maps have them now."""
        if not batch.raw:
            return batch.lookups
        stacks = [stack for stack in self.stacks if stack.name in batch.raw]

        def local(held: Any, lookups: Any, raw: Any, step: jax.Array) -> Any:
            made = {}
            for stack in stacks:
                name, wanted = stack.name, lookups[stack.name].wanted
                rows = self.find_own(stack, held, raw[name].reshape(-1, 2), wanted.reshape(-1), step)
                made[name] = lookups[name].with_wanted(rows.reshape(wanted.shape))
            return made

        split = self.shards.split
        call: Any = self.shards.each(local, (split, split, split, EVERYWHERE), split)
        found: dict[str, Any] = call(*_of(stacks, state.ids, batch.lookups), batch.raw, state.step)
        return batch.lookups | found

    def pack(
        self, inputs: Mapping[str, Any], capacity: int | Mapping[str, int] | None, sizes: Sizes | None
    ) -> PackedBatch:
        """Check, route and lay out this process's examples, an equal number for each of its shards, in order."""
        if sizes is not None:
            self.adopt(sizes.learned.held)
        measured = self.measure(inputs, capacity)
        agree = _largest if sizes is None or sizes.agree is None else sizes.agree
        loose = self.settle(agree(measured.needs)) if self.shards.processes > 1 else measured.loose
        if sizes is not None and capacity is None:
            return measured.pack(sizes.fit(loose))
        # With a capacity, all ids of a device may have one owner: the same shapes for every batch.
        most = {} if capacity is None else {name: measured.capacity.get(name.rpartition("/")[0]) for name in loose}
        return measured.pack({name: max(need, most.get(name) or size_class(need)) for name, need in loose.items()})

    def measure(self, inputs: Mapping[str, Any], capacity: int | Mapping[str, int] | None = None) -> RoutedBatch:
        """Check and route this process's examples: the first half of `pack`. Waits for no other process."""
        counted = self.packer.measure(inputs, capacity)
        parts = len(self.shards.local)
        if not parts:
            raise ValueError("this process holds no device of the mesh, so that it has no part of a batch to pack")
        elements = {name: Elements.of(name, ordered, parts) for name, ordered in counted.ordered.items()}
        # The sizes of the batch before are a good guess; another size takes the time of routing again.
        sizes = {name: held.size or max(held.most, self._guess.get(name, 0)) for name, held in elements.items()}
        return self.routed(counted, elements, sizes)

    def routed(self, counted: Measured, elements: Mapping[str, Elements], sizes: Mapping[str, int]) -> RoutedBatch:
        """Route a batch with the same number of elements of each ordered feature on every device."""
        self._guess.update(sizes)
        parts = len(self.shards.local)
        laid = {name: held.ordered(sizes[name]) for name, held in elements.items()}
        packed = dataclasses.replace(counted, ordered=laid).pack(counted.loose)  # without padding
        groups = tuple((name, split_groups(of_stack, parts)) for name, of_stack in packed.groups)
        made: dict[Any, Routed] = {}  # stacks that are read with the same ids share their routes
        routed = {}
        for stack, (name, of_stack) in zip(self.stacks, packed.groups, strict=True):
            lookups, choice, layout = packed.lookups[name], self.exchanges[name], self.layouts[name]
            alike = (id(lookups), layout, choice)
            if stack.is_dynamic:
                numbered = dataclasses.replace(lookups, ids=np.arange(len(lookups.ids), dtype=np.int32))  # type: ignore[arg-type]
                own = split(numbered, of_stack, parts)
                layout = stand_in_layout(self.shards.count)
                own, raw = with_stand_ins(layout, own, np.asarray(lookups.ids), packed.raw[name])
                made[alike] = dataclasses.replace(route(layout, own, choice), raw=raw)
            elif alike not in made:
                own = split(lookups, of_stack, parts)
                made[alike] = dataclasses.replace(route(layout, own, choice), most=self._most_sums(of_stack, parts))
            routed[name] = made[alike]
        most = {name: len(own.ids) * self.layouts[name].columns for name, own in packed.lookups.items()}
        return RoutedBatch(self, counted, elements, sizes, routed, groups, most)

    def _most_sums(self, groups: Sequence[Group], parts: int) -> int:
        """Return the most bags of a shard at one owner, whatever their ids are."""
        bags = np.zeros(self.shards.count, np.int64)
        for group in groups:
            for place in (self.places[self._table_of[name]] for name in group.features):
                bags[place.device : place.device + place.columns * place.over] += group.num_bags // parts
        return int(bags.max())

    def traffic(self, batch: RoutedBatch, capacity: Mapping[str, int]) -> dict[str, Traffic]:
        """Return the traffic of a measured batch, by stack, once it is packed with ``capacity``."""
        return traffic(batch, capacity)

    def settle(self, needs: npt.NDArray[np.int32]) -> dict[str, int]:
        """Agreed needs by name, after choosing the exchange of each stack that has none yet."""
        by_name: dict[str, int] = {}
        of_stacks, elements = np.split(np.asarray(needs), [len(KINDS) * len(self.stacks)])
        for stack, numbers in zip(self.stacks, of_stacks.reshape(-1, len(KINDS)), strict=True):
            of_stack = dict(zip(KINDS, map(int, numbers), strict=True))
            if self.exchanges[stack.name] is None:
                self.exchanges[stack.name] = chosen(of_stack)
            unused = {POOLED: KINDS[2:4], ROWS: KINDS[:2]}.get(self.exchanges[stack.name] or "", ())
            by_name |= {f"{stack.name}/{kind}": n for kind, n in of_stack.items() if n and kind not in unused}
        return by_name | {size_name(name): int(n) for name, n in zip(self.ordered, elements, strict=True) if n}

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
        """Return the examples of a group in the complete batch, over all processes."""
        return group.num_bags * self.shards.count

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

        def local(tables: dict[str, jax.Array], caches: Any, lookups: Any) -> Any:
            made: dict[str, jax.Array] = {}
            kept = {}
            for stack, groups in stacked:
                name, table, own = stack.name, tables[stack.name], lookups[stack.name]
                is_far = stack.apart and name not in batch.cached
                if is_far:
                    table, rows = self.caches[name].read(table, caches[name], own.wanted.reshape(-1))
                    own = own.with_wanted(rows.reshape(own.wanted.shape))
                sorts = sort and not stack.frozen and not is_far
                vectors, kept[name] = own.fetched(self.shards, self.backends[name], table, sorts)
                made |= self._activations(stack, groups, kept[name], vectors, dtype)
            return made, kept

        split = self.shards.split
        batch = self.exchange(batch)
        found = _tables(state, stacked), state.caches, self._found(state, batch)
        acts, lookups = self.shards.each(local, split, split)(*found)
        far = [stack.name for stack, _ in stacked if stack.apart and stack.name not in batch.cached]
        # For an update, these must be assigned.
        without_rows = {name: batch.lookups[name] for name in (*batch.raw, *far)}
        return acts, dataclasses.replace(batch, lookups=batch.lookups | lookups | without_rows)

    def _activations(
        self, stack: Stack, groups: tuple[Group, ...], lookups: Exchange, vectors: jax.Array, dtype: Any
    ) -> dict[str, jax.Array]:
        rows = lookups.pooled(self.backends[stack.name], vectors, dtype)
        return activations(groups, _joined(rows, self.layouts[stack.name].columns))

    def fetch(self, state: EmbeddingState, batch: PackedBatch, stacked: Stacked) -> tuple[PackedBatch, Any]:
        """Return the batch, exchanged, and the vectors of each stack as they are now."""

        def local(tables: Any, lookups: Any) -> Any:
            given = {name: (self.shards, self.backends[name], tables[name], False) for name in tables}
            return {name: lookups[name].fetched(*own)[0] for name, own in given.items()}

        batch, split = self.exchange(batch), self.shards.split
        return batch, self.shards.each(local, split, split)(_tables(state, stacked), batch.lookups)

    def patch(
        self,
        state: EmbeddingState,
        batch: PackedBatch,
        fetched: Any,
        grads: RowGrads | None,
        stacked: Stacked,
        dtype: Any,
    ) -> dict[str, jax.Array]:
        """Return the activations of a batch that was fetched before the update by ``grads``, as they are after it."""

        def local(tables: Any, lookups: Any, fetched: Any, touched: Any) -> Any:
            made: dict[str, jax.Array] = {}
            for stack, groups in stacked:
                name, own, vectors = stack.name, lookups[stack.name], fetched[stack.name]
                if name in touched:
                    vectors = own.patched(self.shards, self.backends[name], tables[name], vectors, touched[name])
                made |= self._activations(stack, groups, own, vectors, dtype)
            return made

        trained = [stack.name for stack, _ in stacked if not stack.frozen]
        touched = {} if grads is None else {name: grads.stacks[name].ids for name in trained}
        call: Any = self.shards.each(local, self.shards.split, self.shards.split)
        acts: dict[str, jax.Array] = call(_tables(state, stacked), batch.lookups, fetched, touched)
        return acts

    def row_grads(self, batch: PackedBatch, act_grads: Mapping[str, jax.Array], stacked: Stacked) -> RowGrads:
        """Return the gradient of every table, at the owners of the rows."""

        def local(lookups: Any, act_grads: dict[str, jax.Array]) -> dict[str, EntryGradients]:
            made = {}
            for stack, groups in stacked:
                name, layout = stack.name, self.layouts[stack.name]
                grads = _cut(bag_grads(groups, act_grads, self.limits, stack.dim), layout.columns)
                made[name] = lookups[name].row_grads(self.shards, self.backends[name], grads, self.rows_held(stack))
            return made

        split = self.shards.split
        stacks = self.shards.each(local, split, split)(self.exchange(batch).lookups, dict(act_grads))
        rows = tuple((stack.name, self.rows_held(stack)) for stack in self.stacks)
        copies = frozenset(name for name, layout in self.layouts.items() if layout.copies)
        return RowGrads(stacks, rows, self.shards, copies)

    def apply(self, state: EmbeddingState, grads: RowGrads) -> EmbeddingState:
        """One optimizer step, each row at its owner."""
        trained = [stack for stack in self.stacks if not stack.frozen]

        def local(tables: Any, slots: Any, grads: Any, scalars: Any, table_rows: Any, caches: Any) -> Any:
            new_tables, new_slots = {}, {}
            for stack in trained:
                name, layout = stack.name, self.layouts[stack.name]
                own = tuple(slots[name][slot] for slot, _ in stack.step.slots)
                hyper, seeds = scalars[name]
                if stack.apart:
                    cache = self.caches[name]
                    first_rows = jnp.array([segment.begin for segment in cache.settings.segments], jnp.int32)
                    logical = cache.table_rows(caches[name]) if stack.step.stochastic else None
                else:
                    first_rows = jnp.asarray(layout.local_first_rows)[self.shards.index]
                    logical = table_rows.get(name)
                numbers = StepScalars(hyper, seeds, first_rows, logical)
                given = (tables[name], own, grads[name], numbers)
                if layout.columns == 1 or is_by_element(stack.step):
                    step = dataclasses.replace(stack.step, dim=stack.dim // layout.columns)
                    made = self.backends[name].update(step, *given)
                else:
                    made = updated(self.shards, layout, self.backends[name], stack.step, *given)
                new_tables[name] = made[0]
                new_slots[name] = {slot: one for (slot, _), one in zip(stack.step.slots, made[1], strict=True)}
            return new_tables, new_slots

        scalars = {stack.name: tuple(stack.scalars(state.step, state.seed)[:2]) for stack in trained}
        split = self.shards.split
        tables, slots = self.shards.each(local, (*[split] * 3, EVERYWHERE, *[split] * 2), split)(
            *_of(trained, state.tables, state.slots, grads.stacks), scalars, state.table_rows, state.caches
        )
        caches = {name: held._replace(clock=held.clock + 1) for name, held in state.caches.items()}
        tables, slots = state.tables | tables, state.slots | slots
        return dataclasses.replace(state, step=state.step + 1, tables=tables, slots=slots, caches=caches)


def _of(stacks: Sequence[Stack], *by_stack: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of some stacks."""
    return [{stack.name: own[stack.name] for stack in stacks if stack.name in own} for own in by_stack]


def _tables(state: EmbeddingState, stacked: Stacked) -> dict[str, jax.Array]:
    return {stack.name: undifferentiable(state.tables[stack.name]) for stack, _ in stacked}


def _largest(needs: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return the largest needs of all processes; all call this together, from the thread of their other collectives."""
    from jax.experimental import multihost_utils

    gathered: npt.NDArray[np.int32] = np.asarray(multihost_utils.process_allgather(needs))
    most: npt.NDArray[np.int32] = gathered.reshape(-1, len(needs)).max(axis=0)
    return most


def _joined(rows: jax.Array, columns: int) -> jax.Array:
    """(num_bags, dim), from the pieces of all bags, (columns * num_bags, dim / columns)."""
    if columns == 1:
        return rows
    return jnp.concatenate(jnp.split(rows, columns), axis=1)


def _cut(rows: jax.Array, columns: int) -> jax.Array:
    """Invert `_joined`."""
    return rows if columns == 1 else jnp.concatenate(jnp.split(rows, columns, axis=1))
