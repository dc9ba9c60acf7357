"""From one batch of every feature's bags to the inputs of a jitted step: one `Lookups` per stack.

A plan lists the arrays of a batch and where they are in its buffer: `lay_out`. The filler writes them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import numpy as np

from sparrow.embedding.batches.columns import Ordered, ReadColumn, explain, read_columns, read_ordered
from sparrow.embedding.batches.sizes import Sizes, check_capacity, size_class, within
from sparrow.embedding.packed_batch import Group, PackedBatch
from sparrow.embedding.specs import FeatureSpec
from sparrow.embedding.stacking import Stack
from sparrow.kernels import Lookups, feed
from sparrow.registry import nearest

MAX_ENTRIES: Final = 2**28
"""With MAX_ROWS of the specs, row numbers and spare numbers stay within int32."""
KEPT: Final = 256
"""Plans of batches that a packer keeps."""

Size: TypeAlias = int | tuple[int, ...]
"""The number of entries of a stack; or, behind single ids, the places of each feature in every example."""


class InRows(NamedTuple):
    """The ids of a feature in rows: the fields of `sparrow.kernels.feed.Field` with these names."""

    word: int
    bag: int
    there: int = 0


class Shape(NamedTuple):
    """The input of a feature, as far as arrays depend on it.

    Attributes:
      is_ragged: whether bags may hold any number of ids.
      source: equal for features that read the same ids.
      in_rows: where they are in the rows of a block; None: in a column.
    """

    num_bags: int
    is_ragged: bool
    is_weighted: bool
    source: Hashable
    in_rows: InRows | None = None


class Laid(NamedTuple):
    """The lookups of a batch as stand-ins for arrays, and how they are written.

    Attributes:
      by_rows: the stacks whose features are all in rows.
      by_columns: the other stacks, which take the columns of features ``names``.
    """

    packed: PackedBatch
    by_rows: list[feed.Packed]
    by_columns: list[feed.Packed]
    names: list[str]


def grouped(num_bags: Sequence[int], ragged: Sequence[bool], tables: Sequence[Hashable]) -> list[list[int]]:
    """Return the features of each `Group` of a stack, by their numbers: of one number of bags, single ids before bags.

    Single ids of a table that has bags too are among the bags: the gradients of a row are then summed example by
    example, as on a mesh, where each device has the entries of its own examples.

    >>> grouped([4, 2, 4, 4], [True, False, False, True], ["a", "b", "c", "d"])
    [[2], [0, 3], [1]]
    >>> grouped([4, 4, 4], [True, False, False], ["a", "a", "b"])
    [[2], [0, 1]]
    """
    in_bags = {table for table, own in zip(tables, ragged, strict=True) if own}
    keys = [(size, own) for size in dict.fromkeys(num_bags) for own in (False, True)]
    of_features = list(zip(num_bags, (table in in_bags for table in tables), strict=True))
    groups = ([i for i, own in enumerate(of_features) if own == key] for key in keys)
    return [group for group in groups if group]


def members_of(features: Sequence[FeatureSpec], stack: Stack) -> list[FeatureSpec]:
    """Return the features of a stack's tables."""
    tables = {table.name for table in stack.tables}
    return [feature for feature in features if feature.table_spec.name in tables]


def lay_out(
    arrays: feed.Arrays,
    features: Sequence[FeatureSpec],
    stacks: Sequence[Stack],
    shapes: Mapping[str, Shape],
    sizes: Mapping[str, Size],
) -> Laid:
    """Add the lookups of a batch to the arrays of its buffer. ``shapes``: by feature; ``sizes``: by stack."""
    laid = Laid(PackedBatch({}, ()), [], [], [])
    made: dict[Any, tuple[Lookups, Any]] = {}
    lookups, groups, raw = {}, [], {}
    for stack in stacks:
        members = members_of(features, stack)
        own = [shapes[member.name] for member in members]
        tables = [member.table_spec.name for member in members]
        numbers = grouped([shape.num_bags for shape in own], [shape.is_ragged for shape in own], tables)
        parts = [_Part(stack, [members[i] for i in group], [own[i] for i in group]) for group in numbers]
        # Stacks that are read with the same ids at the same places, such as of a wide and a deep part, share them.
        fields = tuple((part.fields, tuple(shapes[name] for name in part.names)) for part in parts)
        alike = stack.num_rows, stack.is_dynamic, fields, sizes.get(stack.name)
        if alike not in made:
            made[alike] = _stack(arrays, stack, parts, sizes.get(stack.name, 0), laid)
        lookups[stack.name], words = made[alike]
        if words is not None:
            raw[stack.name] = words
        groups.append((stack.name, tuple(Group(part.names, part.num_bags) for part in parts)))
    return laid._replace(packed=PackedBatch(lookups, tuple(groups), raw))


class _Part:
    """A group of a stack's features."""

    def __init__(self, stack: Stack, members: Sequence[FeatureSpec], shapes: Sequence[Shape]) -> None:
        self.names = tuple(member.name for member in members)
        self.num_bags = shapes[0].num_bags
        self.fields = tuple(_field(stack, member, shape) for member, shape in zip(members, shapes, strict=True))
        self.has_bags = any(shape.is_ragged for shape in shapes)
        self.is_in_rows = all(shape.in_rows is not None for shape in shapes)
        self.is_weighted = any(
            field.combiner != "sum" or (shape.is_ragged and shape.is_weighted)
            for field, shape in zip(self.fields, shapes, strict=True)
        )

    @property
    def bags(self) -> int:
        return self.num_bags * len(self.names)


def _field(stack: Stack, feature: FeatureSpec, shape: Shape) -> feed.Field:
    table, (word, bag, there) = feature.table_spec, shape.in_rows or InRows(-1, -1)
    names = [spec.name for spec in stack.tables]
    return feed.Field(
        word=word,
        bag=bag,
        start=names.index(table.name) if stack.is_dynamic else stack.rows_of(table.name).start,
        limit=1 if stack.is_dynamic else table.vocabulary_size,
        ignores=feature.invalid_ids == "ignore",
        combiner=feature.pooling if shape.is_ragged else "sum",
        there=there,
    )


def _stack(arrays: feed.Arrays, stack: Stack, parts: Sequence[_Part], size: Size, laid: Laid) -> tuple[Lookups, Any]:
    """Return the lookups of a stack and its raw ids: single ids in front, then all from the first group of bags on."""
    begin = next((i for i, part in enumerate(parts) if part.has_bags), len(parts))
    singles, rest = parts[:begin], parts[begin:]
    first = sum(part.bags for part in singles)
    places = size if isinstance(size, tuple) else None
    entries = 0
    if rest:
        entries = rest[0].num_bags * sum(size) if isinstance(size, tuple) else size - first
    total, spare = first + entries, -1 if stack.is_dynamic else stack.num_rows
    ids = arrays.store((total,), "int32")
    raw = arrays.store((total, 2), "uint32") if stack.is_dynamic else None
    packed, done = [], 0
    for part in singles:
        words = -1 if raw is None else raw.word + 2 * done
        packed.append(feed.Packed(part.fields, spare, part.num_bags, -1, ids.word + done, raw=words))
        done += part.bags
    num_bags = first + sum(part.bags for part in rest)
    of_raw = None if raw is None else arrays.stand_in(raw)
    made = Lookups(arrays.stand_in(ids), None, None, None, num_bags)
    if rest:
        of_bags: Any = None
        offsets: Any = None
        if places is None:
            of_bags, offsets = arrays.store((entries,), "int32"), arrays.store((num_bags - first + 1,), "int32")
        gains = arrays.store((entries,), "float32") if any(part.is_weighted for part in rest) else None
        in_bags, ends, factors = (-1 if held is None else held.word for held in (of_bags, offsets, gains))
        words = -1 if raw is None else raw.word + 2 * first
        for i, part in enumerate(rest):
            fields = part.fields
            if places is not None:
                fields = tuple(field._replace(places=own) for field, own in zip(fields, places, strict=True))
            at = ids.word + first, in_bags, ends, factors
            packed.append(feed.Packed(fields, spare, part.num_bags, entries, *at, first, words, follows=i > 0))
        if places is not None:
            of_bags = feed.Pattern("bags", rest[0].num_bags, places, first)
            offsets = feed.Pattern("offsets", rest[0].num_bags, places, first)
        number, one = feed.Pattern("number", first), feed.Pattern("one", first)
        leaves = [
            None if held is None else arrays.stand_in(feed.Joined(pattern, held) if first else held)
            for held, pattern in ((of_bags, number), (offsets, number), (gains, one))
        ]
        made = Lookups(made.ids, leaves[0], leaves[1], leaves[2], num_bags)
    if all(part.is_in_rows for part in parts):
        laid.by_rows.extend(packed)
    else:
        laid.by_columns.extend(packed)
        laid.names.extend(name for part in parts for name in part.names)
    return made, of_raw


class Shaped(NamedTuple):
    """The columns of a batch, whose sizes are decided: shapes and columns by feature, entries by stack."""

    shapes: dict[str, Shape]
    sizes: dict[str, int]
    columns: dict[str, feed.Column]
    offsets: dict[str, Any]

    @property
    def key(self) -> Hashable:
        """Equal for batches of the same arrays."""
        lengths = tuple((name, len(own)) for name, own in self.offsets.items())
        return tuple(self.shapes.items()), tuple(self.sizes.items()), lengths

    def with_offsets(self, packed: PackedBatch, arrays: feed.Arrays) -> PackedBatch:
        """Return the stand-ins of a batch, with stand-ins of the ordered features' offsets."""
        offsets = {name: arrays.add((len(own),), "int32") for name, own in self.offsets.items()}
        return dataclasses.replace(packed, offsets=offsets)


class Written(NamedTuple):
    """A plan of batches from the columns of features ``names``."""

    filling: feed.ColumnFilling
    names: list[str]
    words: int
    layout: feed.BatchLayout


class Counts(NamedTuple):
    """The ids of one stack.

    Attributes:
      fixed: of features whose number is known: one per bag, bags of one length, or a capacity.
      loose: of the other features; None where there are none.
      ordered: the features whose elements are to be added.
    """

    fixed: int
    loose: int | None
    ordered: list[str]


class Packer:
    """The packing of batches for some features. Plans are made once for each combination of sizes."""

    def __init__(self, features: Sequence[FeatureSpec], stacks: Sequence[Stack]) -> None:
        self.features, self.stacks = tuple(features), tuple(stacks)
        self.members = {stack.name: members_of(features, stack) for stack in stacks}
        self._names = {feature.name for feature in features}
        self._plans: dict[Any, Written] = {}

    def measure(self, inputs: Mapping[str, Any], capacity: int | Mapping[str, int] | None = None) -> Measured:
        """Read one batch, and count its ids: ``inputs`` holds every feature by name."""
        for given in inputs:
            if given not in self._names:
                raise ValueError(f"unknown feature '{given}': {nearest(str(given), self._names)}")
        if missing := sorted(self._names - set(inputs)):
            raise ValueError(f"the batch lacks the feature{'s' * (len(missing) > 1)} {', '.join(missing)}")
        capacities = check_capacity(self._names, capacity)
        read = read_columns(self.features, inputs)
        ordered = {
            feature.name: read_ordered(feature, inputs[feature.name], read[feature.name], capacities.get(feature.name))
            for feature in self.features
            if feature.is_ordered
        }
        counts = {name: self._counted(members, read, capacities) for name, members in self.members.items()}
        return Measured(self, inputs, read, ordered, counts)

    def _counted(
        self, members: Sequence[FeatureSpec], read: Mapping[str, ReadColumn], capacities: Mapping[str, int]
    ) -> Counts:
        fixed, loose, total, ordered = 0, None, 0, list[str]()
        for feature in members:
            name, (column, is_steady) = feature.name, read[feature.name]
            count = len(column.ids)
            total += count
            if feature.is_ordered:
                ordered.append(name)
            elif column.offsets is None or (is_steady and name not in capacities):  # one per bag, for any capacity
                fixed += count
            elif name in capacities:
                fixed += within(name, count, capacities[name])
            else:
                loose = count + (loose or 0)
        if total > MAX_ENTRIES:
            raise ValueError(f"a batch holds at most {MAX_ENTRIES} ids for tables of one kind, got {total}; split it")
        return Counts(fixed, loose, ordered)

    def pack(
        self, inputs: Mapping[str, Any], capacity: int | Mapping[str, int] | None = None, sizes: Sizes | None = None
    ) -> PackedBatch:
        measured = self.measure(inputs, capacity)
        return measured.pack(fit(measured.loose, sizes))

    def plan(self, shaped: Shaped) -> Written:
        key = shaped.key
        if key not in self._plans:
            if len(self._plans) >= KEPT:
                self._plans.clear()
            arrays = feed.Arrays()
            laid = lay_out(arrays, self.features, self.stacks, shaped.shapes, shaped.sizes)
            packed = shaped.with_offsets(laid.packed, arrays)
            filling = feed.ColumnFilling(laid.by_columns)
            self._plans[key] = Written(filling, laid.names, arrays.words, arrays.layout(packed))
        return self._plans[key]

    def explain(self, inputs: Mapping[str, Any]) -> NoReturn:
        """Raise the error of a batch that the filler refused."""
        for feature in self.features:
            explain(feature, inputs[feature.name])
        raise AssertionError("the filler refused a batch without a mistake")


@dataclasses.dataclass(frozen=True)
class Measured:
    """A batch whose size is known, but which is not packed yet; ``inputs`` explain mistakes."""

    packer: Packer
    inputs: Mapping[str, Any]
    read: Mapping[str, ReadColumn]
    ordered: Mapping[str, Ordered]
    counts: Mapping[str, Counts]

    @property
    def loose(self) -> dict[str, int]:
        """The ids whose number may differ from batch to batch, by stack or ordered feature: `Sizes.fit` takes them."""
        found = {name: own.loose for name, own in self.counts.items() if own.loose is not None}
        return found | {
            size_name(name): len(held.column.ids) for name, held in self.ordered.items() if held.size is None
        }

    def shaped(self, capacity: Mapping[str, int]) -> Shaped:
        """Return its columns with the given capacity for loose ids, by the names in `loose`."""
        elements = {
            name: capacity.get(size_name(name), 0) if held.size is None else held.size
            for name, held in self.ordered.items()
        }
        sources: dict[Any, int] = {}
        shapes, columns = {}, {}
        for name, given in self.read.items():
            if name in self.ordered:
                given = ReadColumn(self.ordered[name].column, is_steady=False)
            column = columns[name] = given.column
            source = sources.setdefault(tuple(map(id, column)), len(sources))
            is_ragged, is_weighted = column.offsets is not None, column.weights is not None
            shapes[name] = Shape(elements.get(name, given.num_bags), is_ragged, is_weighted, source)
        sizes = {}
        for name, counts in self.counts.items():
            sizes[name] = counts.fixed + sum(elements[own] for own in counts.ordered) + capacity.get(name, 0)
        return Shaped(shapes, sizes, columns, {name: held.offsets for name, held in self.ordered.items()})

    def pack(self, capacity: Mapping[str, int]) -> PackedBatch:
        """Pack it, with the given capacity for loose ids, by the names in `loose`."""
        shaped = self.shaped(capacity)
        plan = self.packer.plan(shaped)
        buffer = np.empty(plan.words, np.int32)
        if not plan.filling.fill([shaped.columns[name] for name in plan.names], buffer):
            self.packer.explain(self.inputs)
        packed: PackedBatch = plan.layout.views(buffer)
        for name, offsets in shaped.offsets.items():
            packed.offsets[name][:] = offsets
        return packed


def size_name(feature: str) -> str:
    """Return the name of an ordered feature's size among the sizes of stacks.

    >>> size_name("seen")
    'rows of seen'
    """
    return f"rows of {feature}"


def fit(loose: Mapping[str, int], sizes: Sizes | None) -> dict[str, int]:
    """Capacity for the loose ids of each stack: their size class, or what ``sizes`` have learned."""
    return {name: size_class(count) for name, count in loose.items()} if sizes is None else sizes.fit(loose)


def of_one_size(stacks: Sequence[Stack], batches: Sequence[PackedBatch]) -> list[PackedBatch]:
    """Return the batches; batches of equal numbers of examples are padded to the largest of them."""
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
        padded = {s.name: _padded_to(batch.lookups[s.name], sizes[s.name], spare[s.name]) for s in stacks}
        same = all(padded[name] is lookups for name, lookups in batch.lookups.items())
        raw = {name: _pad(words, sizes[name], 0) for name, words in batch.raw.items()}
        made.append(batch if same else dataclasses.replace(batch, lookups=padded, raw=raw))
    return made


def _padded_to(lookups: Lookups, size: int, num_rows: int) -> Lookups:
    """Return the lookups with space for ``size`` entries; entries added read no row."""
    if len(lookups.ids) == size:
        return lookups
    return dataclasses.replace(
        lookups,
        ids=_pad(lookups.ids, size, num_rows),
        bags=_pad(lookups.bags, size, lookups.num_bags),
        gains=None if lookups.gains is None else _pad(lookups.gains, size, 0.0),
    )


def _pad(array: Any, size: int, value: float) -> Any:
    padded = np.full((size, *array.shape[1:]), value, array.dtype)
    padded[: len(array)] = array
    return padded
