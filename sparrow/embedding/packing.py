"""From one batch of every feature's bags to the inputs of a jitted step: one `Lookups` per stack."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sparrow.embedding import compiled
from sparrow.embedding.compiled import Empty, grouped
from sparrow.embedding.dynamic.raw import Raw, for_packing, read_raw
from sparrow.embedding.inputs import Bags, to_bags
from sparrow.embedding.ordered import Ordered, as_single, loose, padded, read_ordered
from sparrow.embedding.packed_batch import Group, PackedBatch
from sparrow.embedding.sizes import Sizes, check_capacity, size_class, within
from sparrow.embedding.specs import FeatureSpec
from sparrow.embedding.stack_arrays import lookups_of, padded_to
from sparrow.embedding.stacking import Stack
from sparrow.kernels import Lookups
from sparrow.registry import nearest

MAX_ENTRIES = 2**28  # with MAX_ROWS of the specs, row numbers and spare numbers stay within int32


class Entries(NamedTuple):
    """The entries of one stack before they are packed.

    Attributes:
      num_bags: the number of bags of each feature.
      ragged: whether the bags of each feature may hold any number of ids.
      fixed: the entries of the features whose number is known: one per bag, bags of one length, or a capacity.
      loose: the entries of the other features; None where there are none.
      lookups: packs them, in arrays with room for a number of entries, which ``empty`` makes.
      again: reads them again with other ids for some features.
    """

    num_bags: list[int]
    ragged: list[bool]
    fixed: int
    loose: int | None
    lookups: Callable[[int, Empty], Lookups]
    again: Callable[[Mapping[str, Any]], Entries]


@dataclasses.dataclass(frozen=True)
class Measured:
    """A batch that was checked, and whose size is known, but which is not packed yet.

    Attributes:
      stacks: the embedder's.
      members: the features of each stack.
      entries: by stack.
      ordered: the elements of the ordered features.
      raw: the raw ids that positions stand for, by stack of dynamic tables.
    """

    stacks: tuple[Stack, ...]
    members: dict[str, list[FeatureSpec]]
    entries: dict[str, Entries]
    ordered: dict[str, Ordered]
    raw: dict[str, Raw] = dataclasses.field(default_factory=dict)

    @property
    def loose(self) -> dict[str, int]:
        """The ids whose number may differ from batch to batch, by stack or ordered feature: `Sizes.fit` takes them."""
        return {name: held.loose for name, held in self.entries.items() if held.loose is not None} | loose(self.ordered)

    def pack(self, room: Mapping[str, int], empty: Empty = np.empty) -> PackedBatch:
        """Pack it, with the given room for loose ids, by the names in `loose`. ``empty(size, dtype)`` makes arrays."""
        made: dict[tuple[int, int], tuple[Entries, Lookups]] = {}  # stacks that share their entries go on sharing them
        lookups, groups = {}, []
        elements = padded(self.ordered, room)
        for stack in self.stacks:
            held, members = self.entries[stack.name], self.members[stack.name]
            alike = id(held), room.get(stack.name, 0)
            if alike not in made:
                own = {feature.name: elements[feature.name] for feature in members if feature.name in elements}
                full = held.again(own) if own else held
                made[alike] = full, full.lookups(full.fixed + alike[1], empty)
            full, lookups[stack.name] = made[alike]
            groups.append((stack.name, _groups(members, full.num_bags, full.ragged)))
        offsets = {name: held.offsets for name, held in self.ordered.items()}
        raw = {}
        for name, held_ids in self.raw.items():
            lookups[name], raw[name] = held_ids.laid_out(lookups[name])
        return PackedBatch(lookups, tuple(groups), raw, offsets)


def measure(
    features: Sequence[FeatureSpec],
    stacks: Sequence[Stack],
    inputs: Mapping[str, Any],
    capacity: int | Mapping[str, int] | None = None,
) -> Measured:
    """Check one batch, and count its ids: ``inputs`` holds every feature by name."""
    inputs, raw = read_raw(features, stacks, inputs)
    features, stacks = for_packing(features, stacks)
    names = {feature.name for feature in features}
    for given in inputs:
        if given not in names:
            raise ValueError(f"unknown feature '{given}': {nearest(str(given), names)}")
    if missing := sorted(names - set(inputs)):
        raise ValueError(f"the batch lacks the feature{'s' * (len(missing) > 1)} {', '.join(missing)}")
    capacities = check_capacity(names, capacity)
    ordered = _read_ordered(features, inputs, capacities)
    inputs = {**inputs, **{name: held.ids for name, held in ordered.items()}}
    features = as_single(features)
    of_stack: dict[str, list[FeatureSpec]] = {}
    bags: dict[Any, Bags] = {}
    made: dict[Any, Entries] = {}
    entries: dict[str, Entries] = {}
    for stack in stacks:
        tables = {table.name for table in stack.tables}
        members = [feature for feature in features if feature.table_spec.name in tables]
        starts = [stack.rows_of(feature.table_spec.name).start for feature in members]
        # Stacks that are read with the same ids at the same places, such as of a wide and a deep part, share them.
        read = [(*_reading(feature, inputs), capacities.get(feature.name)) for feature in members]
        alike = (stack.num_rows, *zip(read, starts, strict=True))
        if alike not in made:
            made[alike] = _Reading(stack, members, inputs, starts, bags, capacities).entries()
        entries[stack.name], of_stack[stack.name] = made[alike], members
    return Measured(tuple(stacks), of_stack, entries, ordered, raw)


def _read_ordered(
    features: Sequence[FeatureSpec], inputs: Mapping[str, Any], capacities: Mapping[str, int]
) -> dict[str, Ordered]:
    """Return the elements of the ordered features; features with the same ids read in the same way share them."""
    made: dict[Any, Ordered] = {}
    ordered = {}
    for feature in features:
        if feature.is_ordered:
            table, size = feature.table_spec, capacities.get(feature.name)
            alike = id(inputs[feature.name]), table.vocabulary_size, feature.invalid_ids, size
            if alike not in made:
                made[alike] = read_ordered(feature, inputs[feature.name], size)
            ordered[feature.name] = made[alike]
    return ordered


def pack(
    features: Sequence[FeatureSpec],
    stacks: Sequence[Stack],
    inputs: Mapping[str, Any],
    capacity: int | Mapping[str, int] | None = None,
    sizes: Sizes | None = None,
) -> PackedBatch:
    """Check and pack one batch, as `Embedder.pack` does."""
    measured = measure(features, stacks, inputs, capacity)
    return measured.pack(fit(measured.loose, sizes))


def fit(loose: Mapping[str, int], sizes: Sizes | None) -> dict[str, int]:
    """Room for the loose ids of each stack: their size class, or what ``sizes`` have learned."""
    return {name: size_class(count) for name, count in loose.items()} if sizes is None else sizes.fit(loose)


def of_one_size(stacks: Sequence[Stack], batches: Sequence[PackedBatch]) -> list[PackedBatch]:
    """Return the batches; the ones with as many examples are padded to the largest of them."""
    if not all(isinstance(lookups, Lookups) for batch in batches for lookups in batch.lookups.values()):
        return list(batches)  # on a mesh, arrays are laid out for their size: such a step has a program of its own
    largest: dict[Any, dict[str, int]] = {}
    for batch in batches:
        sizes = largest.setdefault(batch.groups, {})
        for name, lookups in batch.lookups.items():
            sizes[name] = max(len(lookups.ids), sizes.get(name, 0))
    made = []
    for batch in batches:
        sizes = largest[batch.groups]
        spare = {s.name: -1 if s.name in batch.raw else s.num_rows for s in stacks}
        padded = {s.name: padded_to(batch.lookups[s.name], sizes[s.name], spare[s.name]) for s in stacks}
        same = all(padded[name] is lookups for name, lookups in batch.lookups.items())
        raw = {name: _longer(words, sizes[name]) for name, words in batch.raw.items()}
        made.append(batch if same else dataclasses.replace(batch, lookups=padded, raw=raw))
    return made


def _longer(words: Any, size: int) -> Any:
    """Return raw ids with zeros behind them."""
    made = np.zeros((size, 2), np.uint32)
    made[: len(words)] = words
    return made


def _reading(feature: FeatureSpec, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the same for features that are given the same thing to read in the same way."""
    table = feature.table_spec
    return id(inputs[feature.name]), table.vocabulary_size, feature.pooling, feature.invalid_ids


def _groups(members: Sequence[FeatureSpec], sizes: Sequence[int], ragged: Sequence[bool]) -> tuple[Group, ...]:
    names, tables = [feature.name for feature in members], [feature.table_spec.name for feature in members]
    return tuple(Group(tuple(names[i] for i in group), sizes[group[0]]) for group in grouped(sizes, ragged, tables))


@dataclasses.dataclass(frozen=True)
class _Reading:
    """The inputs of one stack, to be read.

    Attributes:
      stack: the stack.
      members: its features.
      inputs: the inputs of all features.
      starts: the first row of each member's table.
      made: bags that other stacks have read already.
      capacities: the capacities of the features that have one.
    """

    stack: Stack
    members: Sequence[FeatureSpec]
    inputs: Mapping[str, Any]
    starts: Sequence[int]
    made: dict[Any, Bags]
    capacities: Mapping[str, int]

    def entries(self) -> Entries:
        """Return the entries, by compiled code where it can read them."""
        return self.compiled() or self.by_numpy()

    def again(self, inputs: Mapping[str, Any]) -> Entries:
        """Return the entries with other ids for some features."""
        return dataclasses.replace(self, inputs={**self.inputs, **inputs}, made=dict(self.made)).entries()

    def compiled(self) -> Entries | None:
        """Count the entries, and leave the rest to compiled code; None: NumPy must read them."""
        given = compiled.read(self.stack, self.members, self.inputs, self.starts)
        if given is None:
            return None
        num_bags = given.num_bags
        fixed, loose = self._counted(given.counts, given.ragged, [False] * len(num_bags))

        def lookups(size: int, empty: Empty) -> Lookups:
            # NumPy explains the mistakes that compiled code finds.
            return given.lookups(size, empty) or self.by_numpy().lookups(size, empty)

        return Entries(num_bags, given.ragged, fixed, loose, lookups, self.again)

    def by_numpy(self) -> Entries:
        """Read feature by feature."""
        bags = {}
        for feature in self.members:
            alike = _reading(feature, self.inputs)
            if alike not in self.made:
                self.made[alike] = to_bags(feature, self.inputs[feature.name])
            bags[feature.name] = self.made[alike]
        held = list(bags.values())
        num_bags = [of_feature.num_bags for of_feature in held]
        starts = {feature.name: start for feature, start in zip(self.members, self.starts, strict=True)}
        ragged = [of_feature.lengths is not None for of_feature in held]
        groups = _groups(self.members, num_bags, ragged)
        counts, steady = [len(of_feature.ids) for of_feature in held], [of_feature.steady for of_feature in held]
        fixed, loose = self._counted(counts, ragged, steady)

        def lookups(size: int, empty: Empty) -> Lookups:
            return padded_to(lookups_of(self.stack, groups, bags, starts), size, self.stack.num_rows)

        return Entries(num_bags, ragged, fixed, loose, lookups, self.again)

    def _counted(self, counts: list[int], ragged: list[bool], steady: list[bool]) -> tuple[int, int | None]:
        """Return the numbers of fixed and of loose entries."""
        fixed, loose = 0, None
        for feature, count, is_ragged, is_steady in zip(self.members, counts, ragged, steady, strict=True):
            if not is_ragged:  # one per bag, for any capacity
                fixed += count
            elif feature.name in self.capacities:
                fixed += within(feature.name, count, self.capacities[feature.name])
            elif is_steady:
                fixed += count
            else:
                loose = count + (loose or 0)
        total = fixed + (loose or 0)
        if total > MAX_ENTRIES:
            raise ValueError(f"a batch holds at most {MAX_ENTRIES} ids for tables of one kind, got {total}; split it")
        return fixed, loose
