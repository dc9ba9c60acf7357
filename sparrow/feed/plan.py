"""`Plan`: from batches of one size to their buffer. The one way of every batch to a device.

A batch comes as rows of blocks, as columns, or as both: compiled code takes from the rows what it can, and the rest is
taken from columns. The arrays of a batch and their places in its buffer are planned once for each combination of sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.data import Block, BlockLayout
from sparrow.embedding import (
    MAX_ENTRIES,
    Embedder,
    InRows,
    Jagged,
    Measured,
    Packer,
    Ragged,
    Shape,
    Shaped,
    Size,
    Stack,
    lay_out,
    members_of,
    size_name,
)
from sparrow.feed.capacities import Capacity, CountedIds
from sparrow.feed.feed import Parts
from sparrow.kernels import feed

Array = npt.NDArray[Any]
COPIED = ("numbers", "weights", "labels")
"""The parts of a batch whose values are copied to the buffer unchanged."""


class Given(NamedTuple):
    """A batch whose ids are counted.

    Attributes:
      blocks: its rows; none where all comes from columns.
      counted: the ids in bags of each stack that is filled from rows.
      ids: the ids of the other stacks.
      numbers, columns, sequences: arrays that are not in the rows.
      keys: 64-bit keys, which stay on the host.
      examples: the number of examples; padding stands behind them.
    """

    blocks: Sequence[Block]
    counted: Mapping[str, CountedIds]
    ids: Measured | None
    numbers: Mapping[str, Array]
    columns: Mapping[str, Array]
    sequences: Mapping[str, Ragged]
    keys: Mapping[str, npt.NDArray[np.int64]]
    examples: int

    @property
    def loose(self) -> dict[str, int]:
        """The sizes of arrays that depend on earlier batches, besides those of stacks in rows."""
        elements = {size_name(name): len(held.values) for name, held in self.sequences.items()}
        return elements if self.ids is None else {**self.ids.loose, **elements}

    @property
    def is_free(self) -> bool:
        """Whether no size depends on earlier batches."""
        return not self.counted and not self.loose


class Filled(NamedTuple):
    """The arrays of batches of one combination of sizes: a tree, and the place of each in ``parts``.

    ``filling``: how rows are written; ``by_columns``: how columns are, those of the features ``names``; None: none are.
    """

    filling: feed.Filling | None
    by_columns: feed.ColumnFilling | None
    names: list[str]
    words: int
    layout: feed.BatchLayout
    parts: Any


class Plan:
    """Batches of one number of rows, of one layout of rows; None: they come as columns.

    Attributes:
      rows: the examples in a batch, with padding.
      wanted: the names of the features and labels that are taken from columns; None: all are.
      converted: functions of labels that the losses need in another form.
    """

    def __init__(
        self,
        embedder: Embedder,
        ids_of: Mapping[str, str],
        converted: Mapping[str, Callable[[Array], Array]],
        block: Block | None,
        rows: int,
        checked: set[str],
    ) -> None:
        """Plan batches as of ``block``. ``checked``: features whose lengths must be looked at."""
        self.rows, self.converted, self._embedder = rows, converted, embedder
        self._layout = None if block is None else _compiled(block)
        in_rows = {} if self._layout is None else _in_rows(embedder, ids_of, self._layout, rows)
        members = {stack.name: members_of(embedder.features, stack) for stack in embedder.stacks}
        self._in_rows = [
            stack for stack in embedder.stacks if all(member.name in in_rows for member in members[stack.name])
        ]
        held = {stack.name for stack in self._in_rows}
        self._shapes = {member.name: in_rows[member.name] for name in held for member in members[name]}
        others = [stack for stack in embedder.stacks if stack.name not in held]
        features = [feature for feature in embedder.features if feature.name not in self._shapes]
        self.lookups = {feature.name: ids_of[feature.name] for feature in features}
        self.packer = Packer(features, others) if others else None
        places = {} if self._layout is None else self._layout.places
        self._copies = {
            column: place for column, place in places.items() if column[0] in COPIED and place.dtype.itemsize == 4
        }
        self._keys = [name for part, name in places if part == "keys"]
        self.wanted: set[str] | None = None
        if self._layout is not None and block is not None:
            uncopied = {name for part, name in places if part in COPIED and (part, name) not in self._copies}
            self.wanted = {*self.lookups.values(), *uncopied, *checked, *(name for _, name in block.others)}
        self._made: dict[Any, Filled] = {}

    def is_copied(self, part: str, name: str) -> bool:
        return (part, name) in self._copies

    def keys(self, blocks: Sequence[Block]) -> dict[str, Array]:
        if not self._keys:
            return {}
        held = feed.pool.empty((1, len(self._keys), 2 * self.rows), np.int32)
        self._of_keys.fill([[block.rows for block in blocks]], held)
        return dict(zip(self._keys, held[0].view(np.int64), strict=True))

    @functools.cached_property
    def _of_keys(self) -> feed.Filling:
        assert self._layout is not None
        copies = [(self._layout.places["keys", name].word, 2, i * 2 * self.rows) for i, name in enumerate(self._keys)]
        return feed.Filling(self._layout.width, [], [], copies, len(copies) * 2 * self.rows)

    def counted(self, blocks: Sequence[Block]) -> dict[str, CountedIds]:
        """Return the ids in bags of each stack that is filled from rows."""
        if not any(shape.is_ragged for shape in self._shapes.values()):
            return {}
        counts, longest = self._counting.count([block.rows for block in blocks])
        found = {}
        for stack in self._in_rows:
            bags, singles = self._bags(stack)
            ids = sum(counts[i] if i >= 0 else self.rows for i in bags)
            if singles + ids > MAX_ENTRIES:
                text = f"a batch holds at most {MAX_ENTRIES} ids for tables of one kind, got {singles + ids}"
                raise ValueError(f"{text}; lower batch_size")
            if bags:
                found[stack.name] = CountedIds(ids, tuple(longest[i] if i >= 0 else 1 for i in bags))
        return found

    def _bags(self, stack: Stack) -> tuple[list[int], int]:
        """Return the column of each bag of a stack, -1 of a single id among them, and the single ids before them."""
        members = members_of(self._embedder.features, stack)
        of_bags = {one.table_spec.name for one in members if self._shapes[one.name].is_ragged}
        shapes = [self._shapes[one.name] for one in members if one.table_spec.name in of_bags]
        bags = [-1 if own.in_rows is None or not own.is_ragged else own.in_rows.bag for own in shapes]
        return bags, self.rows * (len(members) - len(bags))

    @functools.cached_property
    def _counting(self) -> feed.Filling:
        assert self._layout is not None
        return feed.Filling(self._layout.width, _bag_columns(self._layout), [], [], 0)

    def filled(self, given: Given, capacity: Mapping[str, Capacity], others: Mapping[str, int]) -> tuple[Filled, Any]:
        """Return the arrays of batches such as ``given``, and the columns of its ids.

        ``capacity``: of the stacks in rows; ``others``: the other sizes, by the names of `Given.loose`.
        """
        shaped = None if given.ids is None else given.ids.shaped(others)
        key = (
            tuple(capacity.items()),
            None if shaped is None else shaped.key,
            *(tuple((name, x.shape, x.dtype) for name, x in own.items()) for own in (given.numbers, given.columns)),
            tuple((name, others[size_name(name)], own.values.shape[1:]) for name, own in given.sequences.items()),
        )
        if key not in self._made:
            self._made[key] = self._planned(given, capacity, others, shaped)
        return self._made[key], shaped

    def _planned(
        self, given: Given, capacity: Mapping[str, Capacity], others: Mapping[str, int], shaped: Shaped | None
    ) -> Filled:
        arrays, layout = feed.Arrays(), self._layout
        shapes: dict[str, Shape] = {**self._shapes, **({} if shaped is None else shaped.shapes)}
        sizes: dict[str, Size] = dict[str, Size]() if shaped is None else {**shaped.sizes}
        for stack in self._in_rows:
            own = capacity.get(stack.name, 0)
            sizes[stack.name] = own if isinstance(own, tuple) else self._bags(stack)[1] + own
        laid = lay_out(arrays, self._embedder.features, self._embedder.stacks, shapes, sizes)
        packed = laid.packed
        if shaped is not None:
            packed = shaped.with_offsets(packed, arrays)
        parts: dict[str, dict[str, Any]] = {"numbers": {}, "columns": {}}
        copies = []
        for (part, name), place in self._copies.items():
            dtype = "int32" if part == "labels" and name in self.converted else place.dtype.name
            shape = (self.rows,) if place.width is None else (self.rows, place.width)
            leaf = parts["numbers" if part == "numbers" else "columns"][name] = arrays.add(shape, dtype)
            copies.append((place.word, 1 if place.width is None else place.width, arrays.of(leaf).word))
        for part, held in (("numbers", given.numbers), ("columns", given.columns)):
            parts[part] |= {name: arrays.add(own.shape, feed.word_type(own.dtype)) for name, own in held.items()}
        sequences = {
            name: Jagged(
                arrays.add((others[size_name(name)], *own.values.shape[1:]), "float32"),
                arrays.add((len(own.offsets),), "int32"),
            )
            for name, own in given.sequences.items()
        }
        tree = Parts(packed, parts["numbers"], parts["columns"], sequences)
        filling = None
        if layout is not None and (laid.by_rows or copies):
            filling = feed.Filling(layout.width, _bag_columns(layout), laid.by_rows, copies, arrays.words)
        batch_layout = arrays.layout(tree)
        return Filled(
            *(filling, feed.ColumnFilling(laid.by_columns) if laid.names else None, laid.names),
            *(arrays.words, batch_layout),
            batch_layout.map(lambda leaf: leaf),
        )

    def fill(
        self, batches: Sequence[Given], filled: Filled, columns: Sequence[Any], buffer: npt.NDArray[np.int32]
    ) -> bool:
        """Write batches to a buffer of as many rows, or more; False: something is wrong with the ids of one."""
        if filled.filling is not None:
            rows = [[block.rows for block in batch.blocks] for batch in batches]
            if not filled.filling.fill(rows, buffer):
                return False
        for own, batch, shaped in zip(buffer, batches, columns, strict=False):
            if filled.by_columns:
                given = [shaped.columns[name] for name in filled.names]
                if not filled.by_columns.fill(given, own):
                    return False
            self._write(batch, filled.parts, shaped, own)
        return True

    def _write(self, batch: Given, parts: Any, shaped: Any, own: npt.NDArray[np.int32]) -> None:
        """Write the arrays that are not in rows, and no ids."""
        for places, held in ((parts.numbers, batch.numbers), (parts.columns, batch.columns)):
            for name, values in held.items():
                places[name].view(own)[...] = values
        for name, convert in self.converted.items():
            if ("labels", name) in self._copies:
                labels = parts.columns[name].view(own)
                labels[...] = convert(labels.view(np.float32))
        for name, sequence in batch.sequences.items():
            values = parts.sequences[name].values.view(own)
            values[: len(sequence.values)], values[len(sequence.values) :] = sequence.values, 0.0
            parts.sequences[name].offsets.view(own)[...] = sequence.offsets
        for name, offsets in ({} if shaped is None else shaped.offsets).items():
            parts.packed.offsets[name].view(own)[...] = offsets


def _compiled(block: Block) -> BlockLayout | None:
    """Return the layout of rows that compiled code reads; None: there is no such code."""
    return None if feed.library() is None else block.layout


def _bag_columns(layout: BlockLayout) -> list[tuple[int, int, bool]]:
    return [(bag.word, bag.size, bag.is_weighted) for bag in layout.bags.values()]


def _in_rows(embedder: Embedder, ids_of: Mapping[str, str], layout: BlockLayout, rows: int) -> dict[str, Shape]:
    """Return the lookups that compiled code takes from the rows."""
    found, bags = {}, list(layout.bags)
    for feature in embedder.features:
        column, is_raw = ("ids", ids_of[feature.name]), feature.table_spec.dynamic is not None
        if feature.is_ordered or (feature.invalid_ids == "hash" and not is_raw):
            continue
        if (bag := layout.bags.get(column)) is not None and bag.is_wide == is_raw:
            in_rows = InRows(bag.word, bags.index(column))
            found[feature.name] = Shape(rows, True, bag.is_weighted, column, in_rows)
        place = layout.places.get(column)
        if place is not None and place.dtype.itemsize == 4 and (place.there is not None) == is_raw:
            found[feature.name] = Shape(rows, False, False, column, InRows(place.word, -1, place.there or 0))
    return found
