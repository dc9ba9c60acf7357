"""`Preparer`: from the rows of batches to `Feed`s on the device, in the pipeline's threads."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeAlias

import jax
import numpy as np
import numpy.typing as npt

from sparrow.data import (
    Batch,
    Block,
    BlockLayout,
    DataError,
    ItemCounts,
    check_same_lengths,
    concatenate,
    join,
    without_presence,
)
from sparrow.embedding import Embedder, Jagged, Learned, PackedBatch, Packer, Ragged, RoutedBatch, Sizes, size_name
from sparrow.feed.candidates import IS_EXAMPLE, candidate_columns, is_example, padded_labels
from sparrow.feed.capacities import Capacities, Capacity
from sparrow.feed.feed import Feed, MeshLayout, Parts, filled, own_share, placed
from sparrow.feed.outgoing import Outgoing
from sparrow.feed.plan import Filled, Given, Plan
from sparrow.feed.prepare import Made, Prepare
from sparrow.feed.stages import COPY, PACK, Stages
from sparrow.feed.unvarying import Unvarying
from sparrow.kernels import feed

TOGETHER: Final = 2**17
"""Examples that are written by one call, and go to a device in one transfer: small batches go together."""
TOGETHER_BYTES: Final = 2**24
"""The most bytes of rows in one transfer, where batches go together."""
IDS_OF_A_BAG: Final = 4
"""The ids of a bag that are reckoned with, before any is read."""
MOST_TOGETHER: Final = 16
"""The most batches in one transfer."""

Rows: TypeAlias = Sequence[Block] | Batch
"""A batch as the pipeline gives it: rows of blocks, or columns, where negatives were drawn for it."""


@dataclasses.dataclass(frozen=True)
class Content:
    """The content of batches, besides the numbers of features, and the labels and weights of the data.

    Attributes:
      ids_of: for each lookup, the feature whose ids it takes.
      alike: the groups of sequences whose lengths must agree, with their features.
      label_lengths: the labels that have a number for each candidate of an example, after a sequence of candidates.
      most_candidates: the most candidates of an example; None: it is one candidate.
      keys, classes: the columns of keys that losses compare, such as sessions; the labels that are classes.
      item_id, user_id: the keys of the item that an example chose and of its user, for two towers; None: not known.
    """

    ids_of: Mapping[str, str]
    alike: tuple[tuple[str, tuple[str, ...]], ...] = ()
    label_lengths: tuple[tuple[str, tuple[str, ...]], ...] = ()
    most_candidates: int | None = None
    keys: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    item_id: str | None = None
    user_id: str | None = None

    def lookups(self, ids: Mapping[str, Any]) -> dict[str, Any]:
        return {lookup: without_presence(ids[feature]) for lookup, feature in self.ids_of.items()}


class Sampled(Protocol):
    """The counting of lookups."""

    def sample(self, packed: PackedBatch | RoutedBatch) -> Any:
        """Return the number of lookups of each row in a batch, or None where it is not counted."""


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
    counted: Any = None


class MeshBatch(NamedTuple):
    """A batch on a mesh whose ids are routed, and the sizes that batches have grown to."""

    batch: Batch
    ids: RoutedBatch
    capacity: dict[str, int]
    learned: Learned
    split: MeshLayout


class Looked(NamedTuple):
    """A batch whose ids are counted, with its plan."""

    plan: Plan
    given: Given


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A batch whose sizes are decided: the capacity of stacks in rows, the sizes of others, and all sizes so far."""

    plan: Plan
    given: Given
    capacity: Mapping[str, Capacity]
    others: Mapping[str, int]
    learned: Learned

    @functools.cached_property
    def filled(self) -> tuple[Filled, Any]:
        """Its arrays, which batches of the same sizes have, too, and the columns of its ids."""
        return self.plan.filled(self.given, self.capacity, self.others)


class Preparer(Prepare[Prepared]):
    """Packing of batches and their copy to the device. The pipeline's threads call it while the device computes.

    Attributes:
      embedder: the tables.
      sizes: the sizes that batches are padded to; they only grow.
      capacities: the capacity for bags: these sizes, or fixed places.
      unvarying: looks for columns that hold one value throughout.
      stages: the time of each stage.
      has_own_rows: whether batches hold the rows of this process alone, instead of all.
      shares_transfers: whether batches that go together are one array on the device. On a CPU, where nothing is copied,
        each is an array of its own.
    """

    def __init__(
        self,
        embedder: Embedder,
        content: Content,
        traffic: Sampled | None = None,
        item_counts: ItemCounts | None = None,
        *,
        pads: bool = False,
    ) -> None:
        self.embedder, self._content, self._traffic, self._item_counts = embedder, content, traffic, item_counts
        self.pads, self.sizes = pads, Sizes()
        self.capacities = Capacities(self.sizes)
        self.unvarying = Unvarying()
        self.has_own_rows = False
        self.stages = Stages()
        self._lock = threading.Lock()
        self.shares_transfers = self.loop_only_waits = jax.default_backend() != "cpu"
        self._exchanged: tuple[RoutedBatch, dict[str, int]] | None = None  # the last batch on a mesh
        self._plans: dict[tuple[int, int], tuple[Plan, Any]] = {}
        self._scalars: list[jax.Array] = []
        self._outgoing = Outgoing()
        self._converted = {name: functools.partial(_classes, name) for name in content.classes}

    def together(self, batch_size: int, layout: BlockLayout) -> int:
        """Return the number of batches in one transfer: 1 where they are large, or lengths must be looked at."""
        if self._content.alike or self.embedder.shards is not None:
            return 1
        words = max(layout.width + IDS_OF_A_BAG * len(layout.bags), 1)
        fitting = TOGETHER_BYTES // (4 * words * batch_size)
        return max(min(TOGETHER // batch_size, fitting, MOST_TOGETHER), 1)

    def make(self, batches: Sequence[Rows], in_turn: Callable[[Callable[[], Any]], Any]) -> Made[Prepared]:
        """Return the batches; those without bags need no turn."""
        looked, made = list[Looked | MeshBatch](), list[Prepared]()
        error: Exception | None = None
        try:
            for rows in batches:
                looked.append(self.look(rows))
        except Exception as problem:
            error = problem
        try:
            is_free = all(isinstance(one, Looked) and one.given.is_free for one in looked)
            fitted = [self.measure(one) for one in looked] if is_free else in_turn(lambda: [*map(self.measure, looked)])
            while len(made) < len(fitted):
                run, slots = self._alike_ones(fitted[len(made) :])
                sent = self._sent(run, slots)
                made += sent or self._sent(run[:1], 1)  # alone, it arrives, or its error is raised
        except Exception as problem:
            error = problem
        return Made(made, error)

    def look(self, rows: Rows) -> Looked | MeshBatch:
        """Count the ids of a batch: the work that depends on no other batch. On a mesh, `route` it."""
        if self.embedder.shards is not None:
            return self.route(_batch(rows))
        if not self.unvarying.is_content:
            with self._lock:
                if not self.unvarying.is_content:  # another thread may have seen enough by now
                    self.unvarying.add(_batch(rows).without_padding())
        plan = self._plan(rows)
        if isinstance(rows, Batch) or plan.wanted is None:
            blocks: Sequence[Block] = ()
            batch, counted = _batch(rows), {}
            keys, padding = batch.keys, batch.padding
        else:
            blocks, counted, keys, padding = rows, plan.counted(rows), plan.keys(rows), rows[-1].padding
            batch = concatenate(rows).to_batch(plan.wanted) if plan.wanted else Batch()
            batch = dataclasses.replace(batch, keys=keys)
        self._check(batch)
        numbers, columns = self.arrays(batch, plan.is_copied)
        examples = plan.rows - padding
        if self.pads:
            columns[IS_EXAMPLE] = is_example(plan.rows, examples)
        ids = None
        if plan.packer is not None:
            found = _with_drawn(batch, "ids")
            ids = plan.packer.measure({name: without_presence(found[own]) for name, own in plan.lookups.items()})
        return Looked(
            plan, Given(blocks, counted, ids, numbers, columns, _with_drawn(batch, "sequences"), keys, examples)
        )

    def _plan(self, rows: Rows) -> Plan:
        block, count = (None, len(rows)) if isinstance(rows, Batch) else (rows[0], sum(map(len, rows)))
        layout = None if block is None else block.layout
        key = 0 if layout is None else id(layout), count
        if key not in self._plans:
            checked = {name for _, names in (*self._content.alike, *self._content.label_lengths) for name in names}
            made = Plan(self.embedder, self._content.ids_of, self._converted, block, count, checked)
            self._plans[key] = made, layout  # which keeps its id
        return self._plans[key][0]

    def _check(self, batch: Batch) -> None:
        check_same_lengths(self._content.alike, batch)
        if batch.labels:
            check_same_lengths(self._content.label_lengths, batch)

    def arrays(
        self, batch: Batch, is_copied: Callable[[str, str], bool] = lambda part, name: False
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the numbers and the columns of a batch, without those that are copied from rows."""
        numbers = {name: own for name, own in _with_drawn(batch, "numbers").items() if not is_copied("numbers", name)}
        columns: dict[str, Any] = {name: own for name, own in batch.weights.items() if not is_copied("weights", name)}
        columns |= {name: feed.numbered(batch.keys[name]) for name in self._content.keys & batch.keys.keys()}
        columns |= candidate_columns(batch, self._content.item_id, self._content.user_id, self._item_counts)
        for name, given in batch.labels.items():
            if not is_copied("labels", name):
                labels = padded_labels(given, self._content.most_candidates)
                columns[name] = self._converted[name](labels) if name in self._converted else labels
        return numbers, columns

    def measure(self, looked: Looked | MeshBatch) -> Any:
        """Decide the sizes of a batch, which depend on the order of batches."""
        if isinstance(looked, MeshBatch):
            return self.fit(looked, looked.ids.loose)
        plan, given = looked
        capacity, others = self.capacities.fit(plan.rows, given.counted, given.loose)
        return Fitted(plan, given, capacity, others, self.sizes.learned)

    def _alike_ones(self, fitted: Sequence[Any]) -> tuple[Sequence[Any], int]:
        """Return the first batches that may go in one transfer, and the number of them that it has space for."""
        first = fitted[0]
        if isinstance(first, MeshBatch) or not first.given.blocks:
            return fitted[:1], 1
        slots = self.together(first.plan.rows, first.given.blocks[0].layout)
        alike = itertools.takewhile(lambda one: one.filled[0] is first.filled[0], fitted[:slots])
        run = list(alike)
        return run, slots if self.shares_transfers else len(run)

    def _sent(self, fitted: Sequence[Any], slots: int) -> list[Prepared]:
        """Return batches that were sent together; none of several where one is wrong. Copies are started."""
        first = fitted[0]
        if isinstance(first, MeshBatch):
            return [self._sent_to_mesh(first)]
        with self.stages.timed(PACK):
            plan, how = first.plan, first.filled[0]
            buffer = self._outgoing.empty((slots, how.words))
            try:
                is_right = plan.fill([one.given for one in fitted], how, [one.filled[1] for one in fitted], buffer)
            except DataError:
                if len(fitted) == 1:
                    raise
                is_right = False
            if not is_right:
                return [] if len(fitted) > 1 else self._explain(first)
            counted: list[Any] = [None] * len(fitted)
            if self._traffic is not None:
                counted = [self._traffic.sample(how.layout.views(own).packed) for own in buffer[: len(fitted)]]
        with self.stages.timed(COPY):
            feeds = [Feed(sent, how.layout, plan.rows, slot) for sent, slot in self._put(buffer)]
        self.stages.passed(plan.rows * len(fitted))
        return [
            Prepared(feed, _cut(one.given.keys, one.given.examples), one.learned, one.given.examples, own)
            for feed, one, own in zip(feeds, fitted, counted, strict=False)
        ]

    def _explain(self, fitted: Fitted) -> NoReturn:
        """Raise the error of a batch that could not be filled."""
        if not fitted.given.blocks:
            assert fitted.given.ids is not None
            fitted.given.ids.packer.explain(fitted.given.ids.inputs)
        ids = concatenate(fitted.given.blocks).to_batch().ids
        Packer(self.embedder.features, self.embedder.stacks).explain(self._content.lookups(ids))

    def __call__(self, batch: Batch) -> Prepared:
        return self.finish(self.measure(self.look(batch)))

    def _put(self, buffer: npt.NDArray[np.int32]) -> Iterable[tuple[Any, jax.Array | None]]:
        """Start the copy of batches to the device; yield the array of each, and its number there where they share it.

        On a CPU the arrays are the memory of the buffer, which returns to its pool after the last of them.
        """
        slots = len(buffer)
        if slots > 1 and self.shares_transfers:
            return zip(itertools.repeat(jax.device_put(buffer)), self._numbers(slots), strict=False)
        return [(sent, None) for sent in jax.device_put(list(buffer))]

    def _numbers(self, count: int) -> list[jax.Array]:
        """Return 0, 1, ... as scalars on the device. Threads that come together make them twice."""
        held = self._scalars
        if len(held) < count:
            self._scalars = held = [jax.device_put(np.int32(number)) for number in range(count)]
        return held[:count]

    def route(self, batch: Batch) -> MeshBatch:
        """Count the ids of this process's examples on a mesh: waits for no other process."""
        with self._lock:
            self.unvarying.add(batch.without_padding())
        self._check(batch)
        shards = self.embedder.sharded.shards
        ids, rows = filled(_with_drawn(batch, "ids"), len(shards.local) if self.has_own_rows else shards.count)
        ids = ids if self.has_own_rows else own_share(shards, ids)
        split = MeshLayout(tuple((lookup, rows[name]) for lookup, name in self._content.ids_of.items() if name in rows))
        return MeshBatch(
            batch, self.embedder.sharded.measure(self._content.lookups(ids)), {}, self.sizes.learned, split
        )

    def fit(self, routed: MeshBatch, needs: Mapping[str, int]) -> MeshBatch:
        """Give a batch of `route` the capacity that ``needs``, which all processes agree on, make it have."""
        elements = {size_name(name): len(held.values) for name, held in _with_drawn(routed.batch, "sequences").items()}
        capacity = self.sizes.fit({**needs, **elements})
        return routed._replace(capacity=capacity, learned=self.sizes.learned)

    def finish(self, fitted: Fitted | MeshBatch) -> Prepared:
        """Return one batch, ready for a step. Copies are started, not waited for."""
        return self._sent([fitted], 1)[0]

    def _sent_to_mesh(self, routed: MeshBatch) -> Prepared:
        batch = routed.batch
        with self.stages.timed(PACK):
            numbers, columns = self.arrays(batch)
            if self.pads:
                columns[IS_EXAMPLE] = is_example(len(batch), batch.examples)
            packed = routed.ids.pack(routed.capacity)
            self._exchanged = routed.ids, routed.capacity
            counted = None if self._traffic is None else self._traffic.sample(routed.ids)
        with self.stages.timed(COPY):
            numbers, columns = placed(self.embedder, jax.tree.map(feed.words, (numbers, columns)), self.has_own_rows)
            sequences = {
                name: _padded(own, routed.capacity[size_name(name)])
                for name, own in _with_drawn(batch, "sequences").items()
            }
            parts = Parts(packed, numbers, columns, self.embedder.on_its_devices(sequences))
            processes = self.embedder.sharded.shards.processes if self.has_own_rows else 1
            sent = Feed(parts, routed.split, len(batch) * processes)
        self.stages.passed(len(batch))
        return Prepared(sent, _cut(batch.keys, batch.examples), routed.learned, batch.examples, counted)

    def traffic(self) -> Mapping[str, Any]:
        """Return the traffic of the last batch on a mesh, by stack; of this process's devices."""
        return {} if self._exchanged is None else self.embedder.sharded.traffic(*self._exchanged)


def _cut(keys: Mapping[str, npt.NDArray[np.int64]], examples: int) -> dict[str, npt.NDArray[np.int64]]:
    return {name: own[:examples] for name, own in keys.items()}


def _batch(rows: Rows) -> Batch:
    return rows if isinstance(rows, Batch) else concatenate(rows).to_batch()


def _with_drawn(batch: Batch, part: str) -> dict[str, Any]:
    """Return a part of a batch; features of items have the values of the chosen ones, then of the drawn ones."""
    drawn = {} if batch.negatives is None else getattr(batch.negatives, part)
    return {name: join([own, drawn[name]]) if name in drawn else own for name, own in getattr(batch, part).items()}


def _padded(given: Ragged, size: int) -> Jagged:
    values = np.zeros((size, given.values.shape[1]), np.float32)
    values[: len(given.values)] = given.values
    return Jagged(values, given.offsets.astype(np.int32))  # type: ignore[arg-type]


def _classes(name: str, labels: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    whole = labels.astype(np.int32)
    if (whole != labels).any():
        wrong = labels[whole != labels][0]
        raise DataError(f"the loss needs integers as labels, got {wrong:g}", column=name)
    return whole
