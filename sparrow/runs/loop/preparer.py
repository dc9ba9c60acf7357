"""`Preparer`: from the rows of batches to `Feed`s on the device, in the pipeline's threads."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from sparrow.config import Assembly, Task
from sparrow.data import (
    COPY,
    PACK,
    Batch,
    Block,
    BlockLayout,
    DataError,
    ItemCounts,
    Prepare,
    Stages,
    check_same_lengths,
    concatenate,
    join,
    without_presence,
)
from sparrow.embedding import (
    Embedder,
    Jagged,
    Learned,
    Ragged,
    RoutedBatch,
    Sizes,
    room_name,
)
from sparrow.embedding import Measured as MeasuredIds
from sparrow.reports import size
from sparrow.runs.loop.candidate_labels import padded_labels
from sparrow.runs.loop.candidates import candidate_columns, numbered
from sparrow.runs.loop.feed import Feed, Parts
from sparrow.runs.loop.padding import is_example
from sparrow.runs.loop.recipe import Recipe, recipe
from sparrow.runs.loop.rooms import Counted as CountedIds
from sparrow.runs.loop.rooms import Room, Rooms
from sparrow.runs.loop.transfer import Arena, words
from sparrow.runs.loop.unvarying import Unvarying
from sparrow.runs.recorded.traffic import Counted, Traffic
from sparrow.runs.step.on_mesh import Split, filled, own_share, placed
from sparrow.tasks import IS_EXAMPLE

TOGETHER: Final = 2**17
"""Examples that are written by one call, and go to a device in one transfer: small batches go together."""
TOGETHER_BYTES: Final = 2**24
"""The most bytes of rows in one transfer, where batches go together."""
MOST_TOGETHER: Final = 16
"""The most batches in one transfer."""


class Prepared(NamedTuple):
    """A batch on the device, and values that only the host can use.

    Attributes:
      feed: the batch for the jitted functions.
      keys: the keys that metrics group by, 64 bits wide.
      learned: the sizes that batches have grown to, this one included.
      examples: the number of its examples: padding, which stands behind them, does not count.
      counted: the number of lookups of each row, where counted.
    """

    feed: Feed
    keys: dict[str, npt.NDArray[np.int64]]
    learned: Learned
    examples: int
    counted: Counted | None = None


class Measured(NamedTuple):
    """A batch whose sizes are known, and the sizes that batches have grown to."""

    batch: Batch
    ids: MeasuredIds | RoutedBatch
    room: dict[str, int]
    learned: Learned
    sequences: dict[str, Ragged]
    split: Split | None = None  # on a mesh


class Looked(NamedTuple):
    """A batch for which there is a recipe, and its ids in bags, by stack."""

    recipe: Recipe
    blocks: Sequence[Block]
    counted: dict[str, CountedIds]


class Fitted(NamedTuple):
    """The same, with the sizes that batches have grown to."""

    recipe: Recipe
    blocks: Sequence[Block]
    room: dict[str, Room]
    learned: Learned


class Preparer(Prepare[Prepared]):
    """Packing of batches and their copy to the device. The pipeline's threads call it while the device computes.

    Attributes:
      embedder: the tables.
      ids_of: the feature whose ids each lookup takes.
      sizes: the sizes that batches are padded to; they only grow.
      rooms: the room of bags: these sizes, or fixed places.
      unvarying: looks for columns that hold one value throughout.
      converted: functions of labels that the losses need in another form, by name.
      stages: the time of each stage.
      has_own_rows: whether batches hold the rows of this process alone, instead of all.
      shares_transfers: whether batches that go together are one array on the device. On a CPU, where nothing is copied,
        each is an array of its own.
    """

    parts = Parts

    def __init__(
        self,
        embedder: Embedder,
        assembly: Assembly,
        tasks: Mapping[str, Task],
        traffic: Traffic | None = None,
        item_counts: ItemCounts | None = None,
    ) -> None:
        self._item_counts = item_counts
        self.embedder, self._assembly, self._traffic = embedder, assembly, traffic
        self.ids_of, self._alike = assembly.ids_of, assembly.alike
        self._most = _most_candidates(assembly)
        self.sizes = Sizes()
        self.rooms = Rooms(self.sizes)
        self.unvarying = Unvarying()
        self.has_own_rows = False
        self.stages = Stages()
        self._words = 0  # the most that a batch needed
        self._lock = threading.Lock()
        self.shares_transfers = self.loop_only_waits = jax.default_backend() != "cpu"
        self._exchanged: tuple[RoutedBatch, dict[str, int]] | None = None  # the last batch on a mesh
        self._recipes: dict[tuple[int, int], tuple[Recipe | None, Any]] = {}
        self._scalars: list[jax.Array] = []
        losses = [(task, loss) for task in tasks.values() for loss in task.losses]
        self._keys = {column for _, loss in losses for column in loss.key_columns}
        classes = {task.label for task, loss in losses if loss.label_kind == "class"}
        self.converted = {name: functools.partial(_classes, name) for name in classes}

    def computed(self, batch: Batch) -> dict[str, npt.NDArray[Any]]:
        """Return the columns that the losses compute of keys."""
        found = {name: numbered(batch.keys[name]) for name in self._keys & batch.keys.keys()}
        return {**found, **candidate_columns(batch, self._assembly, self._item_counts)}

    def together(self, batch_size: int, layout: BlockLayout) -> int:
        """Return the number of batches in one transfer: 1 where bags make them large, or each must be measured."""
        if layout.bags or not self._has_recipes:
            return 1
        fitting = TOGETHER_BYTES // (4 * max(layout.width, 1) * batch_size)
        return max(min(TOGETHER // batch_size, fitting, MOST_TOGETHER), 1)

    def at_once(self, batches: Sequence[Sequence[Block]]) -> list[Prepared] | None:
        """Return the batches, where each example holds one id of each feature: most batches do."""
        made: list[Prepared] = []
        while len(made) < len(batches):
            first = batches[len(made)]
            recipe, size = self._recipe(first), _rows(first)
            if recipe is None or recipe.has_bags:
                return None
            slots = self.together(size, first[0].layout)
            alike = [batch for batch in batches[len(made) : len(made) + slots] if _rows(batch) == size]
            sent = self._sent(recipe, alike, {}, slots if self.shares_transfers else len(alike))
            if sent is None:
                return None
            made += sent
        return made

    def look(self, blocks: Sequence[Block]) -> Batch | Looked:
        """Count the ids, where there is a recipe for the batch."""
        recipe = self._recipe(blocks)
        counted = None if recipe is None else recipe.counted(blocks)
        return concatenate(blocks).to_batch() if recipe is None or counted is None else Looked(recipe, blocks, counted)

    def _sent(
        self, recipe: Recipe, batches: Sequence[Sequence[Block]], room: Mapping[str, Room], slots: int = 1
    ) -> list[Prepared] | None:
        """Return batches that were sent together, by a recipe; None: the reference must look at one of them."""
        for batch in batches:
            if not self.unvarying.is_content:
                with self._lock:
                    if not self.unvarying.is_content:  # another thread may have seen enough by now
                        self.unvarying.add(concatenate(batch).to_batch().without_padding())
        with self.stages.timed(PACK):
            try:
                filled, layout = recipe.fill(batches, room, slots), recipe.filled(room).layout
            except DataError:  # raised again at its batch, after the others
                return None
            if filled is None:
                return None
            buffer, keys = filled
            counted: list[Counted | None] = [None] * len(batches)
            if self._traffic is not None:
                counted = [self._traffic.sample(layout.views(own).packed) for own in buffer[: len(batches)]]
        with self.stages.timed(COPY):
            feeds = [Feed(sent, layout, recipe.rows, slot) for sent, slot in self._put(buffer)]
        learned = self.sizes.learned
        self.stages.passed(recipe.rows * len(batches))
        examples = [recipe.rows - batch[-1].padding for batch in batches]
        return [
            Prepared(feed, _cut(of_batch, count), learned, count, own)
            for feed, count, of_batch, own in zip(feeds, examples, keys, counted, strict=False)
        ]

    def _put(self, buffer: npt.NDArray[np.int32]) -> Iterable[tuple[Any, jax.Array | None]]:
        """Start the copy of batches to the device; yield the array of each, and its number there where they share it.

        On a CPU the arrays are the memory of the buffer, which returns to its pool after the last of them.
        """
        slots = len(buffer)
        if slots > 1 and self.shares_transfers:
            return zip(itertools.repeat(jax.device_put(buffer)), self._numbers(slots), strict=False)
        return [(sent, None) for sent in jax.device_put(list(buffer))]

    def _numbers(self, count: int) -> list[jax.Array]:
        """Return 0, 1, ... as scalars on the device."""
        while len(self._scalars) < count:
            self._scalars.append(jax.device_put(np.int32(len(self._scalars))))
        return self._scalars[:count]

    @functools.cached_property
    def _has_recipes(self) -> bool:
        """Whether batches may be written without a look at their ids."""
        return not self._alike and self.embedder.shards is None

    def _recipe(self, blocks: Sequence[Block]) -> Recipe | None:
        if not self._has_recipes:
            return None
        layout, rows = blocks[0].layout, _rows(blocks)
        key = id(layout), rows
        if key not in self._recipes:
            self._recipes[key] = recipe(self, blocks[0], rows), layout  # which keeps its id
        return self._recipes[key][0]

    def measure(self, looked: Batch | Looked) -> Measured | Fitted:
        """Find the room for the ids, which depends on the order of batches."""
        if isinstance(looked, Looked):
            room = self.rooms.fit(looked.recipe.rows, looked.counted)
            return Fitted(looked.recipe, looked.blocks, room, self.sizes.learned)
        routed = self.route(looked)
        return self.fit(routed, routed.ids.loose)

    def route(self, batch: Batch) -> Measured:
        """Count the ids of this process's examples: the part of `measure` that waits for no other process."""
        with self._lock:
            self.unvarying.add(batch.without_padding())
        check_same_lengths(self._alike, batch)
        if batch.labels:
            check_same_lengths(self._assembly.label_lengths, batch)
        ids: dict[str, Any] = batch.ids
        if batch.negatives is not None:  # the features of items hold the chosen items, then the drawn ones
            ids = {**ids, **{name: join([ids[name], drawn]) for name, drawn in batch.negatives.ids.items()}}
        split = None
        if (shards := self.embedder.shards) is not None:
            ids, rows = filled(ids, len(shards.local) if self.has_own_rows else shards.count)
            ids = ids if self.has_own_rows else own_share(shards, ids)
            split = Split(tuple((lookup, rows[name]) for lookup, name in self._assembly.ids_of.items() if name in rows))
        lookups = {name: without_presence(values) for name, values in self._assembly.lookups(ids).items()}
        return Measured(batch, self.embedder.measure(lookups), {}, self.sizes.learned, _sequences(batch), split)

    def fit(self, routed: Measured, needs: Mapping[str, int]) -> Measured:
        """Give a batch of `route` the room that ``needs``, which all processes agree on, make it have."""
        elements = {room_name(name): len(held.values) for name, held in routed.sequences.items()}
        room = self.sizes.fit({**needs, **elements})
        return routed._replace(room=room, learned=self.sizes.learned)

    def finish(self, measured: Measured | Fitted) -> Prepared:
        """Return the batch, ready for a step. Copies are started, not waited for."""
        if isinstance(measured, Fitted):
            sent = self._sent(measured.recipe, [measured.blocks], measured.room)
            if sent is not None:
                return sent[0]._replace(learned=measured.learned)
            # Something is wrong with the batch, which the long way explains.
            again = self.route(concatenate(measured.blocks).to_batch())
            measured = self.fit(again, again.ids.loose)
        batch = measured.batch
        with self.stages.timed(PACK):
            columns: dict[str, Any] = {**batch.weights, **self.computed(batch)}
            labels = {name: padded_labels(x, self._most) for name, x in batch.labels.items()}
            columns |= {name: self.converted[name](x) if name in self.converted else x for name, x in labels.items()}
            numbers: dict[str, Any] = dict(batch.numbers)
            if batch.negatives is not None:
                numbers |= {name: join([numbers[name], drawn]) for name, drawn in batch.negatives.numbers.items()}
            if self.pads:
                columns[IS_EXAMPLE] = is_example(len(batch), batch.examples)
            arena = Arena(self._words)
            packed = measured.ids.pack(measured.room, arena.empty)
            routed = measured.ids if isinstance(measured.ids, RoutedBatch) else packed
            if isinstance(measured.ids, RoutedBatch):
                self._exchanged = measured.ids, measured.room
            counted = None if self._traffic is None else self._traffic.sample(routed)
        with self.stages.timed(COPY):
            sequences = {
                name: _with_room(held, measured.room[room_name(name)]) for name, held in measured.sequences.items()
            }
            if measured.split is None:
                feed = Feed.of(arena, Parts(packed, numbers, columns, sequences), len(batch))
                self._words = max(self._words, len(feed.buffer))
            else:
                numbers, columns = placed(self.embedder, jax.tree.map(words, (numbers, columns)), self.has_own_rows)
                sequences = self.embedder.on_its_devices(sequences)
                size = len(batch) * (self.embedder.sharded.shards.processes if self.has_own_rows else 1)
                feed = Feed(Parts(packed, numbers, columns, sequences), measured.split, size)
        self.stages.passed(len(batch))
        return Prepared(feed, _cut(batch.keys, batch.examples), measured.learned, batch.examples, counted)

    def exchange(self) -> dict[str, str]:
        """Return the traffic of the last batch on a mesh, in words, by stack; of this process's devices."""
        if self._exchanged is None:
            return {}
        return {
            stack: f"{one.exchange}, {size(one.sent)} sent by a device in a step, room for {one.room:,} vectors of a "
            f"pair, the fullest pair has {one.fullest:.2f} times the mean, {one.padding:.0%} is padding"
            for stack, one in self.embedder.sharded.traffic(*self._exchanged).items()
        }


def _cut(keys: Mapping[str, npt.NDArray[np.int64]], examples: int) -> dict[str, npt.NDArray[np.int64]]:
    """Return the keys of the examples of a batch."""
    return {name: own[:examples] for name, own in keys.items()}


def _rows(blocks: Sequence[Block]) -> int:
    return sum(map(len, blocks))


def _most_candidates(assembly: Assembly) -> int | None:
    """Return the most candidates of an example; None: it is one candidate."""
    found = [assembly.lengths[names[0]] for _, names in assembly.label_lengths]
    return found[0] if found else None


def _sequences(batch: Batch) -> dict[str, Ragged]:
    """Return the numbers in order, of the examples and then of the items drawn."""
    drawn = {} if batch.negatives is None else batch.negatives.sequences
    return {name: join([own, drawn[name]]) if name in drawn else own for name, own in batch.sequences.items()}


def _with_room(given: Ragged, size: int) -> Jagged:
    values = np.zeros((size, given.values.shape[1]), np.float32)
    values[: len(given.values)] = given.values
    return Jagged(values, given.offsets.astype(np.int32))  # type: ignore[arg-type]


def _classes(name: str, labels: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    whole = labels.astype(np.int32)
    if (whole != labels).any():
        wrong = labels[whole != labels][0]
        raise DataError(f"the loss needs integers as labels, got {wrong:g}", column=name)
    return whole
