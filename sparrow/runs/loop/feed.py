"""`Feed`: a batch as the jitted functions take it, made ahead of time in the pipeline's thread."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from sparrow.config import Assembly, Task
from sparrow.data import (
    COPY,
    ID,
    PACK,
    Batch,
    Block,
    DataError,
    Prepare,
    Stages,
    check_same_lengths,
    join,
    without_presence,
)
from sparrow.embedding import (
    Embedder,
    HostTables,
    Jagged,
    Learned,
    NewRows,
    PackedBatch,
    Ragged,
    RoutedBatch,
    Sizes,
    Vocabularies,
    of_one_size,
    room_name,
)
from sparrow.embedding import Measured as MeasuredIds
from sparrow.runs.loop.on_mesh import Split, filled, own_share, placed
from sparrow.runs.loop.recipe import Recipe, recipe
from sparrow.runs.loop.transfer import Arena, Buffers, Layout, aligned, words
from sparrow.runs.loop.unvarying import Unvarying
from sparrow.runs.recorded.traffic import Counted, Traffic
from sparrow.tasks import NEGATIVE_IDS, POSITIVE_IDS, TAKES_PART


@jax.tree_util.register_pytree_node_class
class Feed:
    """A batch on the device: one array, and the places of its parts. Jitted functions take all of it.

    Attributes:
      buffer: all arrays, one after the other; on a mesh, the arrays.
      layout: the place of each of them.
      size: the number of examples.
    """

    def __init__(self, buffer: Any, layout: Layout | Split, size: int) -> None:
        self.buffer, self.layout, self.size = buffer, layout, size

    @classmethod
    def of(cls, buffers: Buffers, arena: Arena, parts: Parts, size: int) -> Feed:
        """Send a batch to the device."""
        return cls(*buffers.send(arena, parts), size)

    @functools.cached_property
    def parts(self) -> Parts:
        """The arrays."""
        parts: Parts = self.layout.split(self.buffer)
        return parts

    @property
    def packed(self) -> PackedBatch:
        """Ids, as the tables are looked up with them."""
        return self.parts.packed

    @property
    def numbers(self) -> dict[str, jax.Array]:
        """Dense features, (size, dim) float32."""
        return self.parts.numbers

    @property
    def sequences(self) -> dict[str, Jagged]:
        """Numbers in order, one row per element."""
        return self.parts.sequences

    @property
    def columns(self) -> dict[str, jax.Array]:
        """Labels, sample weights and sessions, (size,), by column."""
        return self.parts.columns

    def examples(self, acts: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Return the activations of the batch's examples, without the empty ones that fill a mesh."""
        if isinstance(self.layout, Layout) or not self.layout.rows:
            return acts
        return acts | {name: acts[name][:rows] for name, rows in self.layout.rows}

    @property
    def shapes(self) -> Parts:
        """The arrays' shapes."""
        shapes: Parts = jax.eval_shape(self.layout.split, self.buffer)
        return shapes

    def with_parts(self, **parts: Any) -> Feed:
        """Return the same batch with other arrays in some parts."""
        return Feed.of(Buffers(), Arena(0), self.parts._replace(**parts), self.size)

    def tree_flatten(self) -> tuple[tuple[Any], tuple[Layout | Split, int]]:
        """For JAX."""
        return (self.buffer,), (self.layout, self.size)

    @classmethod
    def tree_unflatten(cls, fixed: tuple[Layout | Split, int], arrays: tuple[Any]) -> Feed:
        """For JAX."""
        return cls(arrays[0], *fixed)


class Parts(NamedTuple):
    """The arrays of a batch, as `Feed` describes them."""

    packed: PackedBatch
    numbers: dict[str, Any]
    columns: dict[str, Any]
    sequences: dict[str, Jagged] = {}


class Prepared(NamedTuple):
    """A batch on the device, and values that only the host can use.

    Attributes:
      feed: the batch for the jitted functions.
      keys: the keys that metrics group by, 64 bits wide.
      learned: the sizes that batches have grown to, this one included.
      counted: the number of lookups of each row, where counted.
      new: rows of dynamic tables that start fresh with it, by table.
      restarted: the numbers of these rows, on the host.
      rows: rows of tables in host memory that the batch reads, by stack, for evaluation and prediction.
    """

    feed: Feed
    keys: dict[str, npt.NDArray[np.int64]]
    learned: Learned
    counted: Counted | None = None
    new: dict[str, NewRows] = {}
    restarted: dict[str, npt.NDArray[np.int32]] = {}
    rows: dict[str, jax.Array] = {}


class RowsOf(NamedTuple):
    """The ids of dynamic tables, and whether new ones get rows."""

    vocabularies: Vocabularies
    train: bool

    def __call__(self, ids: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, NewRows]]:
        """Rows in place of ids, by lookup, and the rows that start anew."""
        given = {name: without_presence(values) for name, values in ids.items()}
        if not self.train:
            return self.vocabularies.find(given), {}
        try:
            return self.vocabularies.assign(given)
        except ValueError as error:
            raise DataError(str(error)) from None


class Measured(NamedTuple):
    """A batch whose sizes are known, and the sizes that batches have grown to."""

    batch: Batch
    ids: MeasuredIds | RoutedBatch
    room: dict[str, int]
    learned: Learned
    new: dict[str, NewRows]
    sequences: dict[str, Ragged]
    split: Split | None = None  # on a mesh


class Preparer(Prepare[Prepared]):
    """Packing of batches and their copy to the device. The pipeline's threads call it while the device computes.

    Attributes:
      sizes: the sizes that batches are padded to; they only grow.
      unvarying: looks for columns that hold one value throughout.
      stages: the time of each stage.
    """

    parts = Parts

    def __init__(
        self,
        embedder: Embedder,
        assembly: Assembly,
        tasks: Mapping[str, Task],
        traffic: Traffic | None = None,
        rows_of: RowsOf | None = None,
        host: HostTables | None = None,
        train: bool = False,
    ) -> None:
        """Take the tables in host memory, if any. ``train``: their rows come later, and batches stay on the host."""
        self._rows_of = rows_of
        self._host, self._waits = host, host is not None and train
        self.embedder, self._assembly, self._traffic = embedder, assembly, traffic
        self.ids_of, self._alike = assembly.ids_of, assembly.alike
        self.sizes = Sizes()
        self.unvarying = Unvarying()
        self.stages = Stages()
        self._buffers = Buffers()
        self._recipes: dict[tuple[int, int], tuple[Recipe | None, Any]] = {}
        losses = [(task, loss) for task in tasks.values() for loss in task.losses]
        self._keys = {column for _, loss in losses for column in loss.key_columns}
        self._classes = {task.label for task, loss in losses if loss.label_kind == "class"}

    def at_once(self, rows: Block) -> Prepared | None:
        """Return the batch, where each example holds one id of each feature: most batches do."""
        recipe = self._recipe(rows)
        if recipe is None:
            return None
        if not self.unvarying.is_content:
            self.unvarying.add(rows.to_batch())
        with self.stages.timed(PACK):
            arena = self._buffers.arena()
            buffer = arena.buffer if len(arena.buffer) >= recipe.words else aligned(recipe.words)
            if not recipe.fill(rows, buffer):
                return None
        with self.stages.timed(COPY):
            sent: Any = buffer[: recipe.words] if self._waits else self._buffers.put(buffer, recipe.words)
        return Prepared(Feed(sent, recipe.layout, recipe.rows), {}, self.sizes.learned)

    def _recipe(self, rows: Block) -> Recipe | None:
        if self._traffic is not None or self._rows_of is not None or self._classes or self._keys:
            return None
        if self._host is not None and not self._waits:
            return None
        key = id(rows.layout), len(rows)
        if key not in self._recipes:
            self._recipes[key] = recipe(self, rows), rows.layout  # which keeps its id
        return self._recipes[key][0]

    def measure(self, batch: Batch) -> Measured:
        """Count the ids; sizes depend on the order of batches."""
        routed = self.route(batch)
        return self.fit(routed, routed.ids.loose)

    def route(self, batch: Batch) -> Measured:
        """Count the ids of this process's examples: the part of `measure` that waits for no other process."""
        self.unvarying.add(batch)
        check_same_lengths(self._alike, batch)
        ids: dict[str, Any] = batch.ids
        if batch.negatives is not None:  # the features of items hold the chosen items, then the drawn ones
            ids = {**ids, **{name: join([ids[name], drawn]) for name, drawn in batch.negatives.ids.items()}}
        split = None
        if (shards := self.embedder.shards) is not None:
            ids, rows = filled(ids, shards.count)
            ids = own_share(shards, ids)
            split = Split(tuple((lookup, rows[name]) for lookup, name in self._assembly.ids_of.items() if name in rows))
        lookups, new = self._assembly.lookups(ids), dict[str, NewRows]()
        if self._rows_of is not None:
            lookups, new = self._rows_of(lookups)
        return Measured(batch, self.embedder.measure(lookups), {}, self.sizes.learned, new, _sequences(batch), split)

    def fit(self, routed: Measured, needs: Mapping[str, int]) -> Measured:
        """Give a batch of `route` the room that ``needs``, which all processes agree on, make it have."""
        elements = {room_name(name): len(held.values) for name, held in routed.sequences.items()}
        room = self.sizes.fit({**needs, **elements})
        return routed._replace(room=room, learned=self.sizes.learned)

    def finish(self, measured: Measured) -> Prepared:
        """Return the batch, ready for a step. Copies are started, not waited for."""
        batch = measured.batch
        with self.stages.timed(PACK):
            columns: dict[str, Any] = {name: _numbered(batch.keys[name]) for name in self._keys & batch.keys.keys()}
            columns |= batch.weights
            columns |= {name: _classes(name, x) if name in self._classes else x for name, x in batch.labels.items()}
            numbers: dict[str, Any] = dict(batch.numbers)
            if batch.negatives is not None:
                numbers |= {name: join([numbers[name], drawn]) for name, drawn in batch.negatives.numbers.items()}
                columns |= self._item_ids(batch, batch.negatives)
            arena = self._buffers.arena()
            packed = measured.ids.pack(measured.room, arena.empty)
            routed = measured.ids if isinstance(measured.ids, RoutedBatch) else packed
            counted = None if self._traffic is None else self._traffic.sample(routed)
            rows = {}
            if self._host is not None:
                packed = dataclasses.replace(packed, planned=True)  # rows are on the device before anything looks
                if not self._waits:
                    held = {name: np.asarray(packed.lookups[name].ids) for name in self._host.stacks}
                    rows = {name: self._host.read(name, ids) for name, ids in held.items()}
        with self.stages.timed(COPY):
            sequences = {
                name: _with_room(held, measured.room[room_name(name)]) for name, held in measured.sequences.items()
            }
            if self._waits:
                buffer, layout = arena.join(Parts(packed, numbers, columns, sequences))
                feed = Feed(buffer, layout, len(batch))
            elif measured.split is None:
                feed = Feed.of(self._buffers, arena, Parts(packed, numbers, columns, sequences), len(batch))
            else:
                numbers, columns = placed(self.embedder, jax.tree.map(words, (numbers, columns)))
                sequences = self.embedder.on_its_devices(sequences)
                feed = Feed(Parts(packed, numbers, columns, sequences), measured.split, len(batch))
            new: dict[str, NewRows] = measured.new if self._waits else jax.device_put(measured.new)
        restarted: Any = {table: of_table.rows for table, of_table in measured.new.items()}
        return Prepared(feed, batch.keys, measured.learned, counted, new, restarted, rows)

    def send(self, prepared: Prepared, new: dict[str, NewRows]) -> Prepared:
        """Start the copy of a batch that stayed on the host, with its fresh rows."""
        feed = prepared.feed
        sent = self._buffers.put(feed.buffer, len(feed.buffer))
        return prepared._replace(feed=Feed(sent, feed.layout, feed.size), new=jax.device_put(new))

    def _item_ids(self, batch: Batch, drawn: Batch) -> dict[str, npt.NDArray[np.int32]]:
        if batch.takes_part is not None:
            return {TAKES_PART: batch.takes_part.astype(np.int32)}
        chosen = batch.keys[self._assembly.item_id or ""]
        numbers = _numbered(np.concatenate([chosen, drawn.keys[ID]]))
        return {POSITIVE_IDS: numbers[: len(chosen)], NEGATIVE_IDS: numbers[len(chosen) :]}


def alike(embedder: Embedder, feeds: Sequence[Feed]) -> tuple[Feed, ...]:
    """Return the batches of one step, padded to one size where a growth came between them; not on a mesh."""
    if embedder.shards is not None or len(feeds) == 1 or len({feed.layout for feed in feeds}) == 1:
        return tuple(feeds)
    packed = of_one_size(embedder.stacks, [feed.packed for feed in feeds])
    return tuple(
        feed if one is feed.packed else feed.with_parts(packed=one) for feed, one in zip(feeds, packed, strict=True)
    )


def _numbered(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the keys of one batch as 0, 1, ...: devices have 32 bits, and only equality within the batch matters."""
    return np.unique(keys, return_inverse=True)[1].astype(np.int32)


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
