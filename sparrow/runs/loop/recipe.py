"""`Recipe`: from the rows of batches to their buffer in one call of compiled code.

The places of everything in rows and buffer are known before the first batch, but for the room that bags need: the one
thing that depends on earlier batches.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from sparrow.data import Batch, Block, BlockLayout
from sparrow.embedding import MAX_ENTRIES, Group, PackedBatch, Stack
from sparrow.kernels import Lookups, feed
from sparrow.runs.loop.padding import is_example
from sparrow.runs.loop.rooms import Counted, Room
from sparrow.runs.loop.transfer import Joined, Layout, Pattern, Place, after
from sparrow.tasks import IS_EXAMPLE

if TYPE_CHECKING:
    from sparrow.runs.loop.preparer import Preparer

Array = npt.NDArray[Any]


class Filled(NamedTuple):
    """How batches are written to a buffer: the compiled plan, the words of a batch, their layout, and the columns."""

    filling: feed.Filling
    words: int
    layout: Layout
    columns: dict[str, Any]


class OfStack(NamedTuple):
    """The fields of one stack: features of single ids, and then those of bags, and of single ids in the same tables."""

    stack: Stack
    singles: dict[str, feed.Field]
    bags: dict[str, feed.Field]
    is_weighted: bool

    def groups(self, rows: int) -> tuple[Group, ...]:
        """Return the groups of its features, in batches of ``rows`` examples."""
        return tuple(Group(tuple(part), rows) for part in (self.singles, self.bags) if part)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The writing of batches of one size, from rows of one layout.

    Attributes:
      rows: the examples in a batch.
      layout: the layout of the rows.
      stacks: the embedder's.
      parts: makes the tree of a batch from lookups, numbers and columns.
      computed: the columns that depend on the keys of a batch.
      converted: functions of labels that the losses need in another form.
      pads: whether batches have the column that marks padding.
    """

    rows: int
    layout: BlockLayout
    stacks: list[OfStack]
    parts: Any
    computed: Callable[[Batch], Mapping[str, Array]]
    converted: Mapping[str, Callable[[Array], Array]]
    pads: bool
    _made: dict[tuple[tuple[str, Room], ...], Filled] = dataclasses.field(default_factory=dict)

    @property
    def has_bags(self) -> bool:
        """Whether the room depends on earlier batches."""
        return any(held.bags for held in self.stacks)

    def counted(self, batch: Sequence[Block]) -> dict[str, Counted] | None:
        """Return the ids of each stack with bags; None: there are too many."""
        library = feed.library()
        assert library is not None  # or there would be no recipe
        counts, longest = self.filled({}).filling.count(library, [block.rows for block in batch])
        counted = {}
        for held in self.stacks:
            columns = [field.bag for field in held.bags.values()]
            ids = sum(counts[i] if i >= 0 else self.rows for i in columns)
            if self.rows * len(held.singles) + ids > MAX_ENTRIES:
                return None
            if columns:
                counted[held.stack.name] = Counted(ids, tuple(longest[i] if i >= 0 else 1 for i in columns))
        return counted

    def fill(
        self, batches: Sequence[Sequence[Block]], room: Mapping[str, Room], slots: int = 1
    ) -> tuple[npt.NDArray[np.int32], list[dict[str, Array]]] | None:
        """Return batches in one buffer, (slots, words), and the keys of each; None: the reference must look at one."""
        library, filled = feed.library(), self.filled(room)
        assert library is not None  # or there would be no recipe
        buffer = feed.pool.empty((slots, filled.words), np.int32)
        rows = [[block.rows for block in batch] for batch in batches]
        if not filled.filling.fill(library, rows, buffer):
            return None
        keys: list[dict[str, Array]] = [{} for _ in batches]
        if self._keys:
            held = feed.pool.empty((len(batches), len(self._keys), 2 * self.rows), np.int32)
            self._of_keys.fill(library, rows, held)
            keys = [dict(zip(self._keys, own.view(np.int64), strict=True)) for own in held]
        for own, of_batch in zip(buffer, keys if self._keys or self.converted else [], strict=False):
            columns = {name: place.view(own) for name, place in filled.columns.items()}
            for name, values in self.computed(Batch(keys=of_batch)).items():
                columns[name][...] = values
            for name, convert in self.converted.items():
                columns[name][...] = convert(columns[name].view(np.float32))
        if self.pads:
            for own, batch in zip(buffer, batches, strict=False):
                filled.columns[IS_EXAMPLE].view(own)[...] = is_example(self.rows, self.rows - batch[-1].padding)
        return buffer, keys

    @functools.cached_property
    def _keys(self) -> list[str]:
        """The columns of 64-bit keys, which stay on the host."""
        return [name for part, name in self.layout.places if part == "keys"]

    @functools.cached_property
    def _of_keys(self) -> feed.Filling:
        places = [self.layout.places["keys", name] for name in self._keys]
        copies = [(place.word, 2, i * 2 * self.rows) for i, place in enumerate(places)]
        return feed.Filling(self.layout.width, [], [], copies, len(places) * 2 * self.rows)

    def filled(self, room: Mapping[str, Room]) -> Filled:
        """Return the plan for batches with this room for the ids in bags, by stack."""
        key = tuple(sorted(room.items()))
        if key not in self._made:
            self._made[key] = self._planned(room)
        return self._made[key]

    def _planned(self, room: Mapping[str, Room]) -> Filled:
        places = _Places()
        made: dict[Any, list[Any]] = {}  # the lookups of a stack, and its raw ids
        lookups, groups, packed, raw = {}, [], list[feed.Packed](), {}
        for held in self.stacks:
            size = room.get(held.stack.name, 0)
            fields = (*held.singles.values(), *held.bags.values())
            # Stacks that are read with the same ids, such as of a wide and a deep part, share them.
            alike = held.stack.num_rows, fields, size, held.stack.is_dynamic
            if alike not in made:
                *made[alike], own = self._laid_out(places, held, size)
                packed += own
            lookups[held.stack.name], words = made[alike]
            if words is not None:
                raw[held.stack.name] = words
            groups.append((held.stack.name, held.groups(self.rows)))
        copies, others = [], dict[str, dict[str, Any]](numbers={}, weights={}, labels={})
        for (part, name), place in self.layout.places.items():
            if part in others:
                is_converted = part == "labels" and name in self.converted
                shape = (self.rows,) if place.width is None else (self.rows, place.width)
                others[part][name] = leaf = places.add(shape, "int32" if is_converted else place.dtype.name)
                copies.append((place.word, 1 if place.width is None else place.width, places.word(leaf)))
        columns = others["weights"] | others["labels"]
        example = Batch(keys={name: np.zeros(self.rows, np.int64) for name in self._keys})
        columns |= {name: places.add(like.shape, like.dtype.name) for name, like in self.computed(example).items()}
        if self.pads:
            columns[IS_EXAMPLE] = places.add((self.rows,), "float32")
        tree = self.parts(PackedBatch(lookups, tuple(groups), raw), others["numbers"], columns)
        leaves, structure = jax.tree.flatten(tree)
        filling = feed.Filling(
            self.layout.width,
            [(bag.word, bag.size, bag.is_weighted) for bag in self.layout.bags.values()],
            packed,
            copies,
            places.end,
        )
        layout = Layout(structure, tuple(places.of(leaf) for leaf in leaves))
        return Filled(filling, places.end, layout, {name: places.of(leaf) for name, leaf in columns.items()})

    def _laid_out(self, places: _Places, held: OfStack, room: Room) -> tuple[Lookups, Any, list[feed.Packed]]:
        """Return the lookups of a stack, its raw ids, and where compiled code writes them: single ids, then bags."""
        singles, fields, is_raw = tuple(held.singles.values()), tuple(held.bags.values()), held.stack.is_dynamic
        rows = -1 if is_raw else held.stack.num_rows
        first, bags = self.rows * len(singles), self.rows * len(fields)
        entries = self.rows * sum(room) if isinstance(room, tuple) else room
        total = first + (entries if fields else 0)
        ids, raw = places.add((total,), "int32"), places.add((total, 2), "uint32") if is_raw else None
        word, raw_word = places.word(ids), places.word(raw)
        packed = [feed.Packed(singles, rows, self.rows, -1, word, raw=raw_word)] if singles else []
        if not fields:
            return Lookups(ids, None, None, None, first), raw, packed
        if isinstance(room, tuple):
            fields = tuple(field._replace(places=own) for field, own in zip(fields, room, strict=True))
            of_bags: Any = Pattern("bags", self.rows, room, first)
            offsets: Any = Pattern("offsets", self.rows, room, first)
        else:
            of_bags, offsets = places.place((entries,), "int32"), places.place((bags + 1,), "int32")
        gains = places.place((entries,), "float32") if held.is_weighted else None
        in_bags, ends, factors = (place.word if isinstance(place, Place) else -1 for place in (of_bags, offsets, gains))
        of_raw = raw_word + 2 * first if is_raw else -1
        packed.append(
            feed.Packed(fields, rows, self.rows, entries, word + first, in_bags, ends, factors, first, of_raw)
        )
        number, one = Pattern("number", first), Pattern("one", first)
        leaves: list[Any] = [
            None if place is None else places.know(Joined(pattern, place) if singles else place)
            for pattern, place in ((number, of_bags), (number, offsets), (one, gains))
        ]
        return Lookups(ids, leaves[0], leaves[1], leaves[2], first + bags), raw, packed


class _Places:
    """The places of arrays in a buffer, one after the other."""

    def __init__(self) -> None:
        self.end = 0
        self._places: dict[int, tuple[Any, Place | Pattern | Joined]] = {}  # by id, with the leaf, which keeps its id

    def place(self, shape: tuple[int, ...], dtype: str) -> Place:
        """Return the next place in the buffer."""
        made = Place(self.end, shape, dtype)
        self.end = after(self.end + int(np.prod(shape)))
        return made

    def know(self, place: Place | Pattern | Joined) -> Any:
        """Return a leaf that stands for the array at a place."""
        leaf = jax.eval_shape(place.cut, jax.ShapeDtypeStruct((self.end,), np.dtype(np.int32)))  # type: ignore[no-untyped-call]
        self._places[id(leaf)] = leaf, place
        return leaf

    def add(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a leaf that stands for an array, which has a place from now on."""
        return self.know(self.place(shape, dtype))

    def of(self, leaf: Any) -> Place | Pattern | Joined:
        """Return the place of a leaf."""
        return self._places[id(leaf)][1]

    def word(self, leaf: Any) -> int:
        """Return the first word of a leaf; -1 for none, and for one that is not in the buffer alone."""
        place = None if leaf is None else self.of(leaf)
        return place.word if isinstance(place, Place) else -1


def recipe(preparer: Preparer, block: Block, rows: int) -> Recipe | None:
    """Return the recipe of batches of ``rows`` rows such as the ones of a block; None: there is none for them."""
    embedder, ids_of, layout = preparer.embedder, preparer.ids_of, block.layout
    if feed.library() is None or block.others:
        return None
    raw = {("ids", ids_of[one.name]) for one in embedder.features if one.table_spec.dynamic is not None}
    others = [(name, place) for name, place in layout.places.items() if name not in raw]
    if any(place.dtype.itemsize != 4 and part != "keys" for (part, _), place in others):
        return None
    if embedder.shards is not None or any(bag.is_wide != (name in raw) for name, bag in layout.bags.items()):
        return None
    names, bags = {}, list(layout.bags)
    for feature in embedder.features:
        name = "ids", ids_of[feature.name]
        if feature.is_ordered or feature.invalid_ids == "hash" or not (name in layout.places or name in layout.bags):
            return None
        names[feature.name] = name
    stacks = []
    for stack in embedder.stacks:
        tables = {table.name for table in stack.tables}
        members = [feature for feature in embedder.features if feature.table_spec.name in tables]
        singles, in_bags = dict[str, feed.Field](), dict[str, feed.Field]()
        of_bags = {member.table_spec.name for member in members if names[member.name] in layout.bags}
        for member in members:
            name, table = names[member.name], member.table_spec
            is_bag = name in layout.bags
            numbers = [spec.name for spec in stack.tables]
            (in_bags if table.name in of_bags else singles)[member.name] = feed.Field(
                word=layout.bags[name].word if is_bag else layout.places[name].word,
                bag=bags.index(name) if is_bag else -1,
                start=numbers.index(table.name) if stack.is_dynamic else stack.rows_of(table.name).start,
                limit=1 if stack.is_dynamic else table.vocabulary_size,
                ignores=member.invalid_ids == "ignore",
                combiner=member.pooling if is_bag else "sum",
                there=0 if is_bag else layout.places[name].there or 0,
            )
        is_weighted = any(
            field.combiner != "sum" or (field.bag >= 0 and layout.bags[bags[field.bag]].is_weighted)
            for field in in_bags.values()
        )
        stacks.append(OfStack(stack, singles, in_bags, is_weighted))
    converted = {name: use for name, use in preparer.converted.items() if ("labels", name) in layout.places}
    return Recipe(rows, layout, stacks, preparer.parts, preparer.computed, converted, preparer.pads)
