"""`Embedder`: functional lookup and update of tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from sparrow.embedding import host_memory
from sparrow.embedding.batches.packing import Measured
from sparrow.embedding.batches.sizes import Sizes
from sparrow.embedding.dynamic.assigning import missing_rows
from sparrow.embedding.dynamic.saved import Held, Ids, SavedIds, fitted, restored, saved_ids
from sparrow.embedding.nested import Structure
from sparrow.embedding.one_device import OneDevice
from sparrow.embedding.packed_batch import (
    Fetched,
    Group,
    PackedBatch,
    check_act_grads,
    check_assigned,
    check_batch,
    weighted,
)
from sparrow.embedding.row_grads import RowGrads
from sparrow.embedding.sharding.measured import RoutedBatch
from sparrow.embedding.sharding.on_mesh import EXCHANGES, OnMesh
from sparrow.embedding.sharding.placement import Given, resolved, stacked
from sparrow.embedding.sharding.shards import Shards
from sparrow.embedding.specs import FeatureSpec, TableSpec, collect_tables, tables_html
from sparrow.embedding.stacking import Stack, stack_tables
from sparrow.embedding.state import EmbeddingState, check_state
from sparrow.embedding.tracking import ChangedRows, taken
from sparrow.kernels import Backend, choose
from sparrow.kernels.ids import IdState
from sparrow.registry import answering, nearest


@answering
class Embedder:
    """Lookup of features in tables, and update of the touched rows, each by its table's rule, once per step.

    Functional: every method is pure, and all but `pack`, `init` and the views run under ``jax.jit``. Donate the state
    to a jitted step and the tables are updated in place.

    >>> import numpy as np
    >>> import sparrow as sp
    >>> movies = sp.TableSpec(name="movies", vocabulary_size=100, embedding_dim=4, optimizer=sp.rules.SGD(0.5))
    >>> emb = sp.Embedder([sp.FeatureSpec(name="watched", table_spec=movies)])
    >>> state = emb.init(jax.random.key(0))
    >>> batch = emb.pack({"watched": [[3, 5], [], [3]]})
    >>> acts = emb.lookup(state, batch)
    >>> acts["watched"].shape
    (3, 4)
    >>> new = emb.update(state, batch, {"watched": jnp.ones((3, 4))})
    >>> moved = emb.table(new, "movies") - emb.table(state, "movies")
    >>> np.round(moved[jnp.array([3, 5, 7]), 0], 3).tolist()
    [-1.0, -0.5, 0.0]
    """

    def __init__(
        self,
        features: Sequence[Any] | Mapping[str, Any],
        backend: str = "auto",
        mesh: Mesh | None = None,
        axis: str | Sequence[str] = "data",
        exchange: str = "auto",
        placement: Given = "rows",
        exchange_dtype: str = "float32",
    ) -> None:
        """Stack the tables of ``features``.

        Args:
          features: the features, each with its table: a list, or a tree of dicts, lists and named tuples. Inputs,
            activations and gradients are dicts by feature name for a list, and have the structure of a tree.
          backend: "auto", "xla", "native" or "cuda".
          mesh: a mesh of devices that tables and batches are spread over; None: one device. Every method then gives
            and takes arrays of the complete batch, split over ``axis``; `pack` takes the examples of this process.
          axis: the name of the mesh's axis over which rows and examples are split, or several names. Further axes of
            the mesh hold copies.
          exchange: the way of rows to the examples. "pooled": owners sum their rows of each bag. "rows": every
            distinct row travels once. "auto": for each stack the one with less traffic in the first batch packed.
          placement: where rows are on a mesh: "rows" (spread over all devices), "replicated", "device", "columns",
            "grid" or a `Placement`, for all tables or by table name; tables that are not named are spread by rows.
          exchange_dtype: "bfloat16" sends activations and their gradients between devices in 16 bits.
        """
        self._structure = Structure(features)
        self.features: tuple[FeatureSpec, ...] = self._structure.features
        self._names = frozenset(feature.name for feature in self.features)
        self.tables: dict[str, TableSpec] = collect_tables(self.features)
        shards = None if mesh is None else Shards.of(mesh, axis, exchange_dtype)
        specs, apart = list(self.tables.values()), host_memory.is_apart()
        places = resolved(specs, placement, shards.count, shards.processes) if shards is not None else {}
        self.stacks: tuple[Stack, ...]
        if shards is None or shards.mesh.size == 1:
            self.stacks = stack_tables(specs, apart=apart)
        else:
            held = [table.name for table in specs if apart and table.memory is not None]
            if held and shards.mesh.size > shards.count:
                raise ValueError(
                    f"table '{held[0]}' is in host memory, which the copies on other axes of the mesh cannot share; "
                    "give the mesh one axis, or leave memory out"
                )
            self.stacks = stacked(specs, places, apart=apart)
        self._stack_of = {table.name: stack for stack in self.stacks for table in stack.tables}
        self._backends: dict[str, Backend] = {stack.name: choose(backend, stack.step) for stack in self.stacks}
        if exchange not in EXCHANGES:
            raise ValueError(f"unknown exchange '{exchange}': {nearest(str(exchange), EXCHANGES)}")
        self._work: OneDevice | OnMesh = (
            OneDevice(self.features, self.stacks, self._backends)
            if shards is None or shards.mesh.size == 1
            else OnMesh(self.features, self.stacks, self._backends, shards, places, exchange)
        )

    @property
    def shards(self) -> Shards | None:
        """The devices that tables and batches are split over; None: one device."""
        return self._work.shards if isinstance(self._work, OnMesh) else None

    @property
    def sharded(self) -> OnMesh:
        """The work on a mesh: layouts, exchanges, and tables block by block. An error on one device."""
        if not isinstance(self._work, OnMesh):
            raise ValueError("this Embedder works on one device: give it mesh=jax.make_mesh((8,), ('data',))")
        return self._work

    @property
    def frozen(self) -> bool:
        """Whether no table is ever updated."""
        return all(stack.frozen for stack in self.stacks)

    def init(self, key: jax.Array) -> EmbeddingState:
        """Return fresh tables and slots. A table's values depend on ``key`` and its own name alone."""
        if isinstance(key, int):
            raise TypeError(f"init needs a key: emb.init(jax.random.key({key}))")
        return self._work.init(key)

    @answering
    def pack(
        self, inputs: Any, *, capacity: int | Mapping[str, int] | None = None, sizes: Sizes | None = None
    ) -> PackedBatch:
        """Check a batch and pack it for the jitted methods. Runs on the host.

        Ids of dynamic tables are any 64-bit integers, or strings, which are hashed; `assign` gives them rows.

        Ragged features are padded, so that a compiled program serves many batches: to the size class of their ids
        unless ``capacity`` or ``sizes`` gives the size. Padding changes no result.

        Args:
          inputs: by feature name, or in the structure of the features: `Ragged`, a list of lists, 1-D ids (one per
            example), 2-D ids (bags of one length), object arrays of lists, a column of Arrow,
            Polars or pandas with ids or lists of ids, or a sparse matrix (SciPy's, or BCOO) with a row per example, a
            column per id, and weights. The bags of an ordered feature are its sequences. Features may have
            different batch sizes: each has activations of its own.
          capacity: the most ids of a feature in one batch: one number for all features, or numbers by feature name.
            Such features have the same shapes in every batch, so that batches can be stacked for ``jax.lax.scan``. A
            batch that does not fit is an error. A feature of one id per example needs no space besides its batch size.
          sizes: sizes that grow with the batches they have seen; the same object for every batch of a loop.

        On a mesh, ``inputs`` are the examples of this process, in order: each of its devices takes an equal number.
        Ids are routed to the devices that own their rows, with space for all of them: none is ever dropped. Processes
        agree on the sizes; `measure` gives loops the two halves.
        """
        return self._work.pack(self._structure.by_name(inputs, "inputs"), capacity, sizes)

    def assign(
        self, state: EmbeddingState, batch: PackedBatch, *, when: jax.Array | None = None
    ) -> tuple[EmbeddingState, PackedBatch]:
        """Give rows to the raw ids of dynamic tables, and bring rows in host memory to a GPU: at the head of a step.

        Ids are found and counted, admitted, and evicted where there is no free row; rows of new ids start with their
        initializer's values, which depend on table and id alone, and with slots at their start. Rows in host memory
        take the places of those in the cache that were not used for longest. Return the state and the batch with rows.
        Call it within the compiled step, whose state is donated, before `lookup` and `update`; without such tables it
        returns both unchanged.

        Micro-batches of one optimizer step are assigned one after the other. ``when``: nothing changes where it is
        false. A step that needs more rows than there are changes nothing, and neither does any later one: `shortage`
        has the numbers. Outside of compiled programs it is raised here.
        """
        self._check_state(state)
        if not batch.raw and (batch.cached or not state.caches):
            return state, batch
        raw = list(batch.raw)
        new, batch = self._work.assign(state, batch, self._stacks_of(batch), when)
        if new.touched:
            new = self._work.marked(new, self._work.assigned_rows(batch, raw))
        if not isinstance(new.step, jax.core.Tracer) and (problem := self.shortage(new)) is not None:
            raise ValueError(problem)
        return new, batch

    def undo(self, state: EmbeddingState, batches: Sequence[PackedBatch], when: jax.Array) -> EmbeddingState:
        """Return the state as it was before `assign` gave ``batches``, all of one step, where ``when`` is true.

        Ids, counts, clocks, and the rows of evicted ids are as before; `shortage` stays. For a step that is skipped:
        call it after `apply`, whose gradients were zero then, in the same program.
        """
        for batch in reversed([batch for batch in batches if batch.undo]):
            state = self._work.undone(state, batch, when)
        return state

    def has_rows(self, state: EmbeddingState) -> jax.Array:
        """Return whether every step so far had rows for its ids; () bool, for compiled programs."""
        short = [held.short for held in (*state.ids.values(), *(cached.slots for cached in state.caches.values()))]
        return jnp.array(True) if not short else jnp.all(jnp.concatenate(short) == 0)

    def shortage(self, state: EmbeddingState) -> str | None:
        """Return a sentence with both numbers where a step needed more rows than there are; waits for the device."""
        for stack in self.stacks:
            name, of_cache = stack.name, stack.name in state.caches
            maps = [(self._work.id_settings(stack), state.ids[name], False)] if name in state.ids else []
            maps += [(self._work.caches[name].settings, state.caches[name].slots, True)] if of_cache else []
            for settings, held, of_cache in maps:
                short = self._work.ids_on_host(held.short)  # (devices, tables)
                problem = missing_rows(stack, settings, short.max(axis=0), len(short), of_cache=of_cache)
                if problem is not None:
                    return problem
        return None

    def without_shortage(self, state: EmbeddingState) -> EmbeddingState:
        """Return a state that can go on after a step that needed more rows than there are."""

        def none(held: IdState) -> IdState:
            return held._replace(short=jnp.zeros_like(held.short))

        held = {name: none(own) for name, own in state.ids.items()}
        caches = {name: own._replace(slots=none(own.slots)) for name, own in state.caches.items()}
        return dataclasses.replace(state, ids=held, caches=caches)

    def ids(self, state: EmbeddingState, table: str) -> Ids:
        """Return the ids of a dynamic table that a lookup finds, and their rows. On the host."""
        self._check_state(state)
        stack = self._dynamic(table)
        saved = saved_ids(self._work.placing(stack, table), self._ids_on_host(state, stack))
        return saved.live(self.tables[table], int(state.step) + 1)

    def held(self, state: EmbeddingState, table: str) -> Held:
        """Return the counts of a dynamic table's ids. On the host."""
        stack = self._dynamic(table)
        held = state.ids[stack.name]
        return self._work.placing(stack, table).held(*self._work.ids_on_host((held.pools, held.totals)))

    def saved_ids(self, state: EmbeddingState) -> dict[str, SavedIds]:
        """Return the ids of all dynamic tables by row, for a checkpoint. On the host."""
        made: dict[str, SavedIds] = {}
        for stack in self.stacks:
            if stack.is_dynamic:
                held = self._ids_on_host(state, stack)
                made |= {spec.name: saved_ids(self._work.placing(stack, spec.name), held) for spec in stack.tables}
        return made

    def with_ids(self, state: EmbeddingState, saved: Mapping[str, SavedIds]) -> tuple[EmbeddingState, dict[str, Any]]:
        """Return the state with the ids of `saved_ids`, and the saved row of each row of tables whose rows move.

        Rows move where the number of devices, or of rows, is another one; -1: the row is free. Other dynamic tables
        have no ids. Raise ValueError where there are more ids than rows.
        """
        held: dict[str, Any] = {}
        sources: dict[str, Any] = {}
        for stack in self.stacks:
            if not stack.is_dynamic:
                continue
            given = []
            for table in stack.tables:
                if table.name in saved:
                    place = self._work.placing(stack, table.name)
                    own, source = fitted(place, saved[table.name])
                    given.append((place, own))
                    sources |= {} if source is None else {table.name: source}
            parts = 1 if self.shards is None else self.shards.count
            made = restored(self._work.id_settings(stack), given, parts)
            held[stack.name] = self._work.ids_from_host(stack, made)
        return dataclasses.replace(state, ids=held), sources

    def _ids_on_host(self, state: EmbeddingState, stack: Stack) -> Any:
        held = state.ids[stack.name]
        return self._work.ids_on_host(held._replace(buckets=held.short))  # the index is made anew

    def _dynamic(self, table: str) -> Stack:
        stack = self._stack(table)
        if not stack.is_dynamic:
            raise ValueError(f"table '{table}' is not dynamic: its ids are its rows")
        return stack

    def measure(self, inputs: Any) -> Measured | RoutedBatch:
        """Check a batch and count its ids: the first half of `pack`, for loops that pack several batches at a time.

        Learned sizes depend on the order of batches: give them ``loose`` in that order, then pack in any.

        On a mesh this routes the ids, and waits for no other process. A loop over several processes lets ``needs``
        travel with an earlier step, takes the largest of each over all processes, and lays out:
        ``measured.pack(sizes.fit(embedder.sharded.settle(needs)))``.
        """
        return self._work.measure(self._structure.by_name(inputs, "inputs"))

    def with_weights(self, batch: PackedBatch, weights: Mapping[str, jax.Array]) -> PackedBatch:
        """Return the batch with weights that a model has computed, under jit; `lookup` is differentiable in them.

        Args:
          batch: a packed batch, for one device.
          weights: by feature, (ids,) in the order of the ids given to `pack`; other features keep theirs. For a weight
            per id of a table, look it up in a parameter: ``params["weight"][ids]``.
        """
        if self.shards is not None:
            raise ValueError("weights of a batch on a mesh are fixed by pack: give them there, in sp.Ragged(weights=)")
        if unknown := [name for name in weights if name not in self._names]:
            raise ValueError(f"unknown feature '{unknown[0]}': {nearest(unknown[0], sorted(self._names))}")
        features = {feature.name: feature for feature in self.features}
        lookups = dict(batch.lookups)
        for stack, groups in self._stacks_of(batch):
            if any(name in weights for group in groups for name in group.features):
                lookups[stack.name] = weighted(lookups[stack.name], groups, features, stack.num_rows, weights)
        return dataclasses.replace(batch, lookups=lookups)

    def exchange(self, batch: PackedBatch) -> PackedBatch:
        """Send the ids of a batch to the devices that own their rows; on one device, return the batch.

        `lookup` and `row_grads` do it by themselves where it was not done. Begin a compiled step with it, so that ids
        travel once for both; or call it for the next batch while a step runs: it needs no table, and changes no result.
        """
        self._stacks_of(batch)
        return self._work.exchange(batch)

    def lookup(
        self, state: EmbeddingState, batch: PackedBatch, dtype: Any = jnp.float32, acts: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the activations, (batch, dim), by feature or in the structure of the features.

        Take gradients with respect to these, never to the tables.

        An ordered feature (combiner=None) has one row per element, (size, dim): `PackedBatch.jagged` cuts them into
        sequences. Rows past the last element are zeros.

        The weights of a batch are its float leaves (``batch.lookups[stack].gains``, times the combiner's factor), and
        the activations are differentiable in them: `with_weights`.

        ``dtype``: the dtype of the activations; bags are summed in float32.
        ``acts``: activations of some features, from `patch`, which are not looked up again.
        """
        return self._looked_up(state, batch, dtype, acts, sort=False)[0]

    def lookup_for_update(
        self, state: EmbeddingState, batch: PackedBatch, dtype: Any = jnp.float32, acts: Mapping[str, Any] | None = None
    ) -> tuple[Any, PackedBatch]:
        """Return `lookup`, and the batch to give to `row_grads` or `update` afterwards, in the same program.

        A GPU sorts the ids for the update while it looks them up; `update` of the batch as `pack` made it sorts them
        itself, later. On a mesh, ids travel once for both.
        """
        return self._looked_up(state, batch, dtype, acts, sort=True)

    def _looked_up(
        self, state: EmbeddingState, batch: PackedBatch, dtype: Any, acts: Mapping[str, Any] | None, *, sort: bool
    ) -> tuple[Any, PackedBatch]:
        self._check_state(state)
        known = dict(acts or {})
        stacked = [(stack, groups) for stack, groups in self._stacks_of(batch) if groups[0].features[0] not in known]
        found, batch = self._work.lookup(state, batch, stacked, dtype, sort=sort)
        return self._structure.build(known | found), batch

    def fetch(self, state: EmbeddingState, batch: PackedBatch) -> Fetched:
        """Bring the rows of the next batch to its devices, as they are before the update of this step, for `patch`.

        Rows of dynamic tables are left out: they are known once their ids are assigned.
        """
        self._check_state(state)
        return Fetched(*self._work.fetch(state, batch, self._known(batch)))

    def patch(
        self, state: EmbeddingState, fetched: Fetched, grads: RowGrads | None, dtype: Any = jnp.float32
    ) -> dict[str, jax.Array]:
        """Return the activations of a batch that was fetched before ``grads`` were applied, as they are after it.

        Rows that ``grads`` touch travel again, others do not; the result is that of `lookup`, to the bit. By feature
        name; features of dynamic tables are left out, and `lookup` adds them. ``grads`` None: nothing was applied.
        """
        self._check_state(state)
        batch = fetched.batch
        return self._work.patch(state, batch, fetched.vectors, grads, self._known(batch), dtype)

    def _known(self, batch: PackedBatch) -> list[tuple[Stack, tuple[Group, ...]]]:
        """Return the stacks whose rows in a batch are known before their ids are assigned."""
        known = [(stack, groups) for stack, groups in self._stacks_of(batch) if stack.name not in batch.raw]
        return [(stack, groups) for stack, groups in known if not stack.apart]

    def by_name(self, tree: Any) -> Mapping[str, Any]:
        """Return activations, or anything in the structure of the features, by the names in `features`."""
        return self._structure.by_name(tree, "the tree")

    def zeros(self, batch: PackedBatch) -> Any:
        """Return zeros in float32 like the activations of ``batch``."""
        shapes = self.activation_shapes(batch)
        return self._structure.build({name: jnp.zeros(shape, jnp.float32) for name, shape in shapes.items()})

    def activation_shapes(self, batch: PackedBatch) -> dict[str, tuple[int, int]]:
        """Return the shape of each feature's activations by its name, (batch, dim) or (size, dim)."""
        shapes = {
            name: (self._work.batch_size(group), stack.dim)
            for stack, groups in self._stacks_of(batch)
            for group in groups
            for name in group.features
        }
        return {feature.name: shapes[feature.name] for feature in self.features}

    def row_grads(self, batch: PackedBatch, act_grads: Any) -> RowGrads:
        """Return the tables' gradient from the activations' gradients: a value to add, scale, measure, then `apply`."""
        check_assigned(batch, self.stacks)
        act_grads = self._structure.by_name(act_grads, "act_grads")
        check_act_grads(self.activation_shapes(batch), act_grads)
        return self._work.row_grads(batch, act_grads, self._stacks_of(batch))

    def apply(self, state: EmbeddingState, grads: RowGrads) -> EmbeddingState:
        """Take one optimizer step: apply each table's rule once per touched row."""
        self._check_state(state)
        if grads.shards != self.shards:
            raise ValueError("these row gradients were made by an Embedder on other devices; use this one's row_grads")
        new = self._work.apply(state, grads)
        rows = {name: own.ids for name, own in grads.stacks.items() if name in new.touched}
        return self._work.marked(new, rows) if rows else new

    def tracked(self, state: EmbeddingState) -> EmbeddingState:
        """Return the state with the bytes that `taken` needs, none of them set."""
        if state.caches:
            raise ValueError("changed rows of tables in host memory apart from the device's are not tracked yet")
        zeros = {stack.name: self._work.no_rows(stack) for stack in self.stacks if not stack.frozen}
        return dataclasses.replace(state, touched=zeros)

    def taken(self, state: EmbeddingState, taker: int) -> tuple[EmbeddingState, Callable[[], dict[str, ChangedRows]]]:
        """Return the state, and the rows of each table that changed since ``taker`` took them last.

        The state must be `tracked`. The rows are gathered on their devices at once; the function brings them to the
        host, in any thread. ``taker``: `CHECKPOINTS` or `EXPORTS` of `sparrow.embedding.tracking`. The first call
        compiles all programs; one before the first step takes no rows.
        """
        return taken(self, state, taker)

    def update(self, state: EmbeddingState, batch: PackedBatch, act_grads: Any) -> EmbeddingState:
        """Call `row_grads` and `apply`."""
        return self.apply(state, self.row_grads(batch, act_grads))

    def arrays(self, state: EmbeddingState, stack: Stack) -> dict[str, Any]:
        """Return the table of a stack under "", and its slots, with all rows, for `checkpoint`.

        Of a stack in host memory apart from the device's: NumPy views of it, which the next step changes, and writing
        to them changes the tables of a state `without_caches`.
        """
        return self._work.arrays(state, stack)

    def without_caches(self, state: EmbeddingState) -> EmbeddingState:
        """Return the state with all rows that are in host memory there, and none in the caches on the device."""
        caches = {}
        for stack in self.stacks:
            if stack.apart:
                self.arrays(state, stack)
                caches[stack.name] = self._work.emptied(stack, state.caches[stack.name])
        return dataclasses.replace(state, caches=caches) if caches else state

    def cache_traffic(self, state: EmbeddingState) -> dict[str, float]:
        """Return ``cache_bytes_in`` and ``cache_bytes_out`` of tables in host memory: mean bytes per step so far.

        Empty where no table is apart from the device. Waits for it.
        """
        held = [(cache, state.caches[name]) for name, cache in self._work.caches.items()]
        moved = [cache.moved(*self._work.ids_on_host((own.slots.totals, own.clock))) for cache, own in held]
        names = ("cache_bytes_in", "cache_bytes_out") if moved else ()
        return dict(zip(names, map(sum, zip(*moved, strict=True)), strict=True))

    def table(self, state: EmbeddingState, name: str) -> jax.Array:
        """Return the logical table, (vocabulary_size, embedding_dim); on a mesh and in host memory as a NumPy array."""
        rows: jax.Array = self._logical(state, name)[""]
        return rows

    def slots(self, state: EmbeddingState, name: str) -> dict[str, jax.Array]:
        """Return the logical slots of a table, by slot name, as `table` does."""
        return {slot: rows for slot, rows in self._logical(state, name).items() if slot}

    def _logical(self, state: EmbeddingState, name: str) -> dict[str, Any]:
        self._check_state(state)
        stack = self._stack(name)
        span = stack.rows_of(name)
        held = {slot: self._work.rows(stack, array, span) for slot, array in self.arrays(state, stack).items()}
        return {slot: np.array(array) for slot, array in held.items()} if stack.apart else held

    def with_table(self, state: EmbeddingState, name: str, array: Any) -> EmbeddingState:
        """Return the state with the values of table ``name`` replaced."""
        return self._replaced(state, name, {"": array})

    def with_slots(self, state: EmbeddingState, name: str, slots: Mapping[str, Any]) -> EmbeddingState:
        """Return the state with some or all slots of table ``name`` replaced."""
        return self._replaced(state, name, slots)

    def _replaced(self, state: EmbeddingState, table: str, new: Mapping[str, Any]) -> EmbeddingState:
        stack = self._stack(table)
        span, held = stack.rows_of(table), dict(self.arrays(state, stack))
        for slot, array in new.items():
            if slot not in held:
                raise ValueError(
                    f"table '{table}' has no slot '{slot}': {nearest(slot, [name for name in held if name])}"
                )
            shape = (span.stop - span.start, *held[slot].shape[1:])
            what = f"slot '{slot}' of table '{table}'" if slot else f"table '{table}'"
            if jnp.shape(array) != shape:
                raise ValueError(f"{what} has the shape {shape}, got {jnp.shape(array)}")
            state = self.without_caches(state) if stack.apart else state
            held[slot] = self._work.with_rows(stack, held[slot], span, array)
        if stack.apart:
            return state
        tables = state.tables | {stack.name: held.pop("")}
        return dataclasses.replace(state, tables=tables, slots=state.slots | {stack.name: held})

    def _check_state(self, state: Any) -> None:
        check_state(state, {} if self.shards is None else self.sharded.layout)

    def on_its_devices(self, tree: Any) -> Any:
        """Return the tree with every leaf on all devices of the mesh; on one device, the tree.

        Use it for dense parameters and all other inputs of a compiled step besides tables and batches.
        """
        return tree if self.shards is None else self.shards.put_missing(tree)

    def backend_of(self, table: str) -> str:
        """Return the name of the backend that runs ``table``."""
        return self._backends[self._stack(table).name].name

    def __repr__(self) -> str:
        stacks = ", ".join(f"{s.name}: {s.num_rows}x{s.dim} on {self._backends[s.name].name}" for s in self.stacks)
        over = "" if self.shards is None else f", over {self.shards.count} devices"
        return f"Embedder({len(self.features)} features, {len(self.tables)} tables; {stacks}{over})"

    def _repr_html_(self) -> str:
        return tables_html(repr(self), self.tables, self.features)

    def _stack(self, table: str) -> Stack:
        if table not in self._stack_of:
            raise ValueError(f"unknown table '{table}': {nearest(str(table), self._stack_of)}")
        return self._stack_of[table]

    def _stacks_of(self, batch: PackedBatch) -> list[tuple[Stack, tuple[Group, ...]]]:
        check_batch(batch, self.stacks, is_on_mesh=self.shards is not None)
        return [(stack, groups) for stack, (_, groups) in zip(self.stacks, batch.groups, strict=True)]
