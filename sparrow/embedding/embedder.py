"""`Embedder`: tables and features in, a functional lookup and update out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from sparrow.embedding.dynamic.new_rows import held_rows, put_back, started
from sparrow.embedding.dynamic.vocabularies import Vocabularies
from sparrow.embedding.guards import undifferentiable
from sparrow.embedding.packing import Group, Measured, PackedBatch, measure, pack
from sparrow.embedding.row_grads import RowGrads
from sparrow.embedding.sizes import Sizes
from sparrow.embedding.specs import FeatureSpec, TableSpec
from sparrow.embedding.stacking import Stack, stable_hash, stack_tables
from sparrow.kernels import Backend, RowGradients, choose
from sparrow.registry import nearest


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EmbeddingState:
    """All tables and slots, by stack, and the optimizer step. A pytree; `Embedder.table` gives logical views.

    Attributes:
      step: () int32, how many updates were made.
      seed: () uint32, of stochastic rounding.
      tables: (rows, dim) by stack.
      slots: (rows,) or (rows, dim) float32, by stack and slot name.
    """

    step: jax.Array
    seed: jax.Array
    tables: dict[str, jax.Array]
    slots: dict[str, dict[str, jax.Array]]


class Embedder:
    """Looks features up in tables and updates the touched rows, each by its table's rule, once per step.

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

    def __init__(self, features: Sequence[FeatureSpec], backend: str = "auto") -> None:
        """Stacks the tables of ``features`` and picks a backend: "auto", "xla", "native" or "cuda"."""
        self.features: tuple[FeatureSpec, ...] = _check_features(features)
        self.tables: dict[str, TableSpec] = _collect_tables(self.features)
        self.stacks: tuple[Stack, ...] = stack_tables(list(self.tables.values()))
        self._stack_of = {table.name: stack for stack in self.stacks for table in stack.tables}
        self._backends: dict[str, Backend] = {stack.name: choose(backend, stack.step) for stack in self.stacks}

    @property
    def frozen(self) -> bool:
        """Whether no table is ever updated."""
        return all(stack.frozen for stack in self.stacks)

    def init(self, key: jax.Array) -> EmbeddingState:
        """Fresh tables and slots. A table's values depend on ``key`` and its own name alone."""
        tables, slots = {}, {}
        for stack in self.stacks:
            tables[stack.name] = _init_tables(stack, key)
            slots[stack.name] = {name: _init_slot(stack, name, layout) for name, layout in stack.step.slots}
        seed = jax.random.bits(jax.random.fold_in(key, stable_hash("stochastic rounding")), (), jnp.uint32)
        return EmbeddingState(jnp.zeros((), jnp.int32), seed, tables, slots)

    def pack(
        self,
        inputs: Mapping[str, Any],
        *,
        capacity: int | Mapping[str, int] | None = None,
        sizes: Sizes | None = None,
        vocabularies: Vocabularies | None = None,
        train: bool = True,
    ) -> PackedBatch:
        """Check a batch and pack it for the jitted methods. Runs on the host.

        Ragged features are padded, so that a compiled program serves many batches: to the size class of their ids
        unless ``capacity`` or ``sizes`` gives the size. Padding changes no result.

        Args:
          inputs: by feature name: `Ragged`, a list of lists, 1-D ids (one per example), 2-D ids (bags of one length),
            or an Arrow column of ids or of lists of ids.
          capacity: the most ids of a feature in one batch: one number for all features, or numbers by feature name.
            Such features have the same shapes in every batch, so that batches can be stacked for ``jax.lax.scan``. A
            batch that does not fit is an error. A feature of one id per example needs no room beside its batch size.
          sizes: sizes that grow with the batches they have seen; the same object for every batch of a loop.
          vocabularies: the ids of dynamic tables; the same object for every batch of a loop, in the order of its steps.
            Give the batch to `admit` before anything else.
          train: whether ids of dynamic tables are counted and get rows, or are looked up as they stand.
        """
        if vocabularies is None:
            if dynamic := [name for name, table in self.tables.items() if table.dynamic is not None]:
                raise ValueError(f"table '{dynamic[0]}' is dynamic: give pack the vocabularies of emb.vocabularies()")
            return pack(self.features, self.stacks, inputs, capacity, sizes)
        if not train:
            return pack(self.features, self.stacks, vocabularies.find(inputs), capacity, sizes)
        rows, new = vocabularies.assign(inputs)
        try:
            batch = pack(self.features, self.stacks, rows, capacity, sizes)
        except Exception:
            vocabularies.undo_last()
            raise
        return dataclasses.replace(batch, new=new)

    def vocabularies(self, *, accumulate: int = 1) -> Vocabularies:
        """Empty vocabularies of the dynamic tables, for `pack`.

        ``accumulate``: batches that one optimizer step takes.
        """
        return Vocabularies(self.features, accumulate=accumulate)

    def admit(
        self, state: EmbeddingState, batch: PackedBatch, *, when: jax.Array | None = None
    ) -> tuple[EmbeddingState, PackedBatch]:
        """Start the rows of ids that are new in a batch: values from the initializer and the id, slots at their start.

        Return the state, and the batch without them: call it between `pack` and the jitted step, whose program does not
        depend on the number of new ids then. The state is given away. ``when``: nothing changes where it is false.
        """
        if not batch.new:
            return state, batch
        return self._with_arrays(
            state, batch, lambda stack, arrays: started(stack, arrays, state.seed, batch.new, when)
        )

    def overwritten(self, state: EmbeddingState, batch: PackedBatch) -> dict[str, Any]:
        """The values that `admit` overwrites; `give_back` brings them back."""
        held: dict[str, Any] = {}
        for stack in self.stacks:
            held |= held_rows(stack, self._arrays(state, stack), batch.new)
        return held

    def give_back(self, state: EmbeddingState, batch: PackedBatch, held: Mapping[str, Any]) -> EmbeddingState:
        """Undo `admit` of ``batch``: ``held`` is what `overwritten` gave. The state is given away."""
        return self._with_arrays(state, batch, lambda stack, arrays: put_back(stack, arrays, batch.new, held))[0]

    def _arrays(self, state: EmbeddingState, stack: Stack) -> dict[str, jax.Array]:
        return {"": state.tables[stack.name], **state.slots[stack.name]}

    def _with_arrays(
        self, state: EmbeddingState, batch: PackedBatch, change: Callable[[Stack, Any], Any]
    ) -> tuple[EmbeddingState, PackedBatch]:
        """The state with the arrays changed of stacks that have new rows, and the batch without these."""
        tables, slots = dict(state.tables), dict(state.slots)
        for stack in self.stacks:
            if any(table.name in batch.new for table in stack.tables):
                arrays = change(stack, self._arrays(state, stack))
                tables[stack.name] = arrays.pop("")
                slots[stack.name] = arrays
        return dataclasses.replace(state, tables=tables, slots=slots), dataclasses.replace(batch, new={})

    def measure(self, inputs: Mapping[str, Any]) -> Measured:
        """Check a batch and count its ids: the first half of `pack`, for loops that pack several batches at a time.

        Learned sizes depend on the order of batches: give them what is ``loose`` in that order, then pack in any.
        """
        return measure(self.features, self.stacks, inputs)

    def lookup(self, state: EmbeddingState, batch: PackedBatch, dtype: Any = jnp.float32) -> dict[str, jax.Array]:
        """Activations by feature, (batch, dim). Take gradients with respect to these, never to the tables.

        ``dtype``: what the activations are rounded to; bags are summed in float32.
        """
        rows = {
            stack.name: self._backends[stack.name].lookup(self._table(state, stack), batch.lookups[stack.name], dtype)
            for stack, _ in self._stacks_of(batch)
        }
        return self._activations(batch, rows)

    def lookup_for_update(
        self, state: EmbeddingState, batch: PackedBatch, dtype: Any = jnp.float32
    ) -> tuple[dict[str, jax.Array], PackedBatch]:
        """`lookup`, and the batch to give to `row_grads` or `update` afterwards, in the same program.

        A GPU sorts the ids for the update while it looks them up; `update` of the batch as `pack` made it sorts them
        itself, later.
        """
        rows, lookups = {}, {}
        for stack, _ in self._stacks_of(batch):
            backend, table, given = self._backends[stack.name], self._table(state, stack), batch.lookups[stack.name]
            if stack.frozen:
                rows[stack.name], lookups[stack.name] = backend.lookup(table, given, dtype), given
            else:
                rows[stack.name], lookups[stack.name] = backend.lookup_and_sort(table, given, dtype)
        return self._activations(batch, rows), dataclasses.replace(batch, lookups=lookups)

    def _table(self, state: EmbeddingState, stack: Stack) -> jax.Array:
        return undifferentiable(state.tables[stack.name])

    def _activations(self, batch: PackedBatch, rows: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """By feature, from the (num_bags, dim) pooled rows of every stack."""
        activations: dict[str, jax.Array] = {}
        for stack, groups in self._stacks_of(batch):
            start = 0
            for group in groups:
                size = len(group.features) * group.num_bags
                # Slices of columns: a model that puts its features side by side again gets this very array, because XLA
                # joins neighbouring slices to one. It does not see through slices of a middle axis.
                block = rows[stack.name][start : start + size]
                block = block.reshape(group.num_bags, len(group.features) * stack.dim)
                activations |= {
                    name: block[:, i * stack.dim : (i + 1) * stack.dim] for i, name in enumerate(group.features)
                }
                start += size
        return {feature.name: activations[feature.name] for feature in self.features}

    def activation_shapes(self, batch: PackedBatch) -> dict[str, tuple[int, int]]:
        """The shape of each feature's activations, (batch, dim), in the order of `lookup`."""
        shapes = {
            name: (group.num_bags, stack.dim)
            for stack, groups in self._stacks_of(batch)
            for group in groups
            for name in group.features
        }
        return {feature.name: shapes[feature.name] for feature in self.features}

    def row_grads(self, batch: PackedBatch, act_grads: Mapping[str, jax.Array]) -> RowGrads:
        """The tables' gradient from the activations' gradients, as a value: add, scale, measure, then `apply`."""
        self._check_act_grads(batch, act_grads)
        stacks = {}
        for stack, groups in self._stacks_of(batch):
            blocks = [
                jnp.concatenate([self._clamped(name, act_grads[name]) for name in group.features], axis=1).reshape(
                    -1, stack.dim
                )
                for group in groups
            ]
            bag_grads = blocks[0] if len(blocks) == 1 else jnp.concatenate(blocks)
            lookups = batch.lookups[stack.name]
            stacks[stack.name] = RowGradients(lookups.ids, lookups.bags, lookups.gains, bag_grads, lookups.order)
        return RowGrads(stacks, tuple((stack.name, stack.num_rows) for stack in self.stacks))

    def apply(
        self, state: EmbeddingState, grads: RowGrads, *, logical_rows: Mapping[str, jax.Array] | None = None
    ) -> EmbeddingState:
        """One optimizer step: each table's rule, once per touched row.

        ``logical_rows``: by stack, (rows,) int32, the number that each row has in its complete table. Given for stacks
        that hold their rows in another order, or only some of them: stochastic rounding is keyed by it.
        """
        renumbered = logical_rows or {}
        tables: dict[str, jax.Array] = {}
        slots: dict[str, dict[str, jax.Array]] = {}
        for stack in self.stacks:
            names = [name for name, _ in stack.step.slots]
            if stack.frozen:
                tables[stack.name], slots[stack.name] = state.tables[stack.name], {}
                continue
            tables[stack.name], new_slots = self._backends[stack.name].update(
                stack.step,
                state.tables[stack.name],
                tuple(state.slots[stack.name][name] for name in names),
                grads.stacks[stack.name],
                stack.scalars(state.step, state.seed, renumbered.get(stack.name)),
            )
            slots[stack.name] = dict(zip(names, new_slots, strict=True))
        return EmbeddingState(state.step + 1, state.seed, tables, slots)

    def update(self, state: EmbeddingState, batch: PackedBatch, act_grads: Mapping[str, jax.Array]) -> EmbeddingState:
        """`row_grads` and `apply` in one."""
        return self.apply(state, self.row_grads(batch, act_grads))

    def table(self, state: EmbeddingState, name: str) -> jax.Array:
        """The logical table, (vocabulary_size, embedding_dim)."""
        stack = self._stack(name)
        return _view(stack, name, state.tables[stack.name])

    def slots(self, state: EmbeddingState, name: str) -> dict[str, jax.Array]:
        """The logical slots of a table, by slot name."""
        stack = self._stack(name)
        return {slot: _view(stack, name, array) for slot, array in state.slots[stack.name].items()}

    def with_table(self, state: EmbeddingState, name: str, array: Any) -> EmbeddingState:
        """The state with the values of table ``name`` replaced."""
        stack = self._stack(name)
        new = _replaced(stack, name, state.tables[stack.name], array, f"table '{name}'")
        return dataclasses.replace(state, tables=state.tables | {stack.name: new})

    def with_slots(self, state: EmbeddingState, name: str, slots: Mapping[str, Any]) -> EmbeddingState:
        """The state with some or all slots of table ``name`` replaced."""
        stack = self._stack(name)
        held = dict(state.slots[stack.name])
        for slot, array in slots.items():
            if slot not in held:
                raise ValueError(f"table '{name}' has no slot '{slot}': {nearest(slot, held)}")
            held[slot] = _replaced(stack, name, held[slot], array, f"slot '{slot}' of table '{name}'")
        return dataclasses.replace(state, slots=state.slots | {stack.name: held})

    def backend_of(self, table: str) -> str:
        """The name of the backend that runs ``table``."""
        return self._backends[self._stack(table).name].name

    def __repr__(self) -> str:
        stacks = ", ".join(f"{s.name}: {s.num_rows}x{s.dim} on {self._backends[s.name].name}" for s in self.stacks)
        return f"Embedder({len(self.features)} features, {len(self.tables)} tables; {stacks})"

    def _stack(self, table: str) -> Stack:
        if table not in self._stack_of:
            raise ValueError(f"unknown table '{table}': {nearest(str(table), self._stack_of)}")
        return self._stack_of[table]

    def _stacks_of(self, batch: PackedBatch) -> list[tuple[Stack, tuple[Group, ...]]]:
        if batch.new:
            raise ValueError("the batch has ids that are new: call state, batch = emb.admit(state, batch) first")
        if [name for name, _ in batch.groups] != [stack.name for stack in self.stacks]:
            raise ValueError("this batch was packed by another Embedder; use this one's pack")
        return [(stack, groups) for stack, (_, groups) in zip(self.stacks, batch.groups, strict=True)]

    def _clamped(self, feature: str, grad: jax.Array) -> jax.Array:
        """The gradient within its table's limits. One in 16 bits stays so: the update reads half as much."""
        limit = next(f for f in self.features if f.name == feature).table_spec.optimizer.max_gradient
        grad = jnp.asarray(grad)
        if limit is None and grad.dtype in (jnp.bfloat16, jnp.float16):
            return grad
        grad = grad.astype(jnp.float32)
        return grad if limit is None else jnp.clip(grad, -limit, limit)

    def _check_act_grads(self, batch: PackedBatch, act_grads: Mapping[str, jax.Array]) -> None:
        expected = self.activation_shapes(batch)
        for name in act_grads:
            if name not in expected:
                raise ValueError(f"act_grads has an unknown feature '{name}': {nearest(str(name), expected)}")
        for name, shape in expected.items():
            if name not in act_grads:
                raise ValueError(f"act_grads lacks the feature '{name}'")
            if jnp.shape(act_grads[name]) != shape:
                raise ValueError(f"act_grads['{name}'] must have the shape {shape}, got {jnp.shape(act_grads[name])}")


def _check_features(features: Sequence[FeatureSpec]) -> tuple[FeatureSpec, ...]:
    features = tuple(features)
    if not features:
        raise ValueError("an Embedder needs at least one FeatureSpec")
    seen: set[str] = set()
    for feature in features:
        if not isinstance(feature, FeatureSpec):
            raise TypeError(f"an Embedder takes FeatureSpecs, got {feature!r}")
        if feature.name in seen:
            raise ValueError(f"two features are called '{feature.name}'; names must be unique")
        seen.add(feature.name)
    return features


def _collect_tables(features: Sequence[FeatureSpec]) -> dict[str, TableSpec]:
    tables: dict[str, TableSpec] = {}
    for feature in features:
        table = feature.table_spec
        if tables.setdefault(table.name, table) != table:
            raise ValueError(
                f"two different tables are called '{table.name}'; features that share a table must share its TableSpec"
            )
    return tables


def _init_tables(stack: Stack, key: jax.Array) -> jax.Array:
    def values(table: TableSpec) -> jax.Array:
        return table.initial_values(jax.random.fold_in(key, stable_hash(table.name)))

    if len(stack.tables) == 1:
        return values(stack.tables[0])
    array = jnp.zeros((stack.num_rows, stack.dim), stack.step.dtype)
    for table, start in zip(stack.tables, stack.first_rows, strict=True):
        # Waited for, or the next table would be drawn while this one is still held twice.
        array = jax.block_until_ready(_place(array, values(table), start))  # type: ignore[no-untyped-call]
    return array


@functools.partial(jax.jit, donate_argnums=0)  # in place: at most one table is held twice
def _place(array: jax.Array, rows: jax.Array, start: int) -> jax.Array:
    return jax.lax.dynamic_update_slice(array, rows, (start, 0))


def _init_slot(stack: Stack, slot: str, layout: str) -> jax.Array:
    starts = [table.optimizer.slot_init(slot) for table in stack.tables]
    array = jnp.full(stack.slot_shape(layout), starts[0], jnp.float32)
    for table, value in zip(stack.tables, starts, strict=True):
        if value != starts[0]:
            array = array.at[stack.rows_of(table.name)].set(value)
    return array


def _view(stack: Stack, table: str, array: jax.Array) -> jax.Array:
    return array if len(stack.tables) == 1 else array[stack.rows_of(table)]


def _replaced(stack: Stack, table: str, array: jax.Array, new: Any, what: str) -> jax.Array:
    shape = jax.eval_shape(lambda a: a[stack.rows_of(table)], array).shape
    if jnp.shape(new) != shape:
        raise ValueError(f"{what} has the shape {shape}, got {jnp.shape(new)}")
    new = jnp.asarray(new, array.dtype)
    return new if len(stack.tables) == 1 else array.at[stack.rows_of(table)].set(new)
