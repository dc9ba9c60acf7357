"""`Pipeline`: batches from a source, shuffled, made ahead in the background, resumable at any batch.

The order of rows is a pure function of the seed, the epoch and the source's chunks: an epoch visits the chunks in a
seeded order, joins them to windows of at least ``shuffle_rows`` rows, and shuffles each window. So a position is a few
numbers, and restoring it reads one window. Chunks, windows and batches are made by several threads and yielded
in order: the number of threads changes nothing but the speed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar, cast

from sparrow import fields
from sparrow.background import Until
from sparrow.data.batch import Batch
from sparrow.data.block import Block, concatenate
from sparrow.data.converter import Converter
from sparrow.data.crew import Crew, Task, default_threads, do
from sparrow.data.cuts import Cut, cuts, together
from sparrow.data.errors import DataError, WaitInterrupted
from sparrow.data.features import Feature
from sparrow.data.labels import Label
from sparrow.data.memory import Memory
from sparrow.data.merging import Merged, told
from sparrow.data.position import Position, SharePosition
from sparrow.data.prefetch import prefetch
from sparrow.data.prepare import Made, OneByOne, Prepare, Turns
from sparrow.data.reading import Reading
from sparrow.data.samplers import Sampler
from sparrow.data.shares import Division
from sparrow.data.sources.base import BadRows, Reader, Source
from sparrow.data.stages import Stages
from sparrow.data.values import kind_of
from sparrow.data.windows import Window
from sparrow.kernels import feed

MEMORY_AHEAD: Final = 2**31
"""Default of the bytes that rows made early may take."""

T = TypeVar("T")


def _no_work() -> bool:
    return False


def _unchanged(batch: Batch) -> Batch:
    return batch


class Pipeline(Generic[T]):
    """Batches of a source. OneByOne ``iter`` starts at the beginning, or at the position of `restore`.

    Attributes:
      stages: the time that reading, decoding and converting take.
      waited: seconds that batches were waited for, while the device was idle.
      is_idle: returns whether the device is idle, as far as the loop knows.
      interrupted: returns whether to stop waiting for a batch.
      counts_waits: whether waiting for a batch is added to ``waited``; False where another thread takes the batches.

    >>> from sparrow.data import IdFeature, Tables
    >>> table = Tables({"item": [1, 2, 3, 4, 5], "click": [0, 1, 0, 1, 1]})
    >>> pipeline = Pipeline(table, [IdFeature("item", num_buckets=10, embedding_dim=4)], labels=["click"], batch_size=2)
    >>> [batch.ids["item"].tolist() for batch in pipeline]
    [[1, 2], [3, 4], [5]]
    """

    def __init__(
        self,
        source: Source,
        features: Sequence[Feature],
        *,
        batch_size: int,
        labels: Sequence[str | Label] = (),
        weights: Sequence[str] = (),
        keys: Sequence[str] = (),
        epochs: int | None = 1,
        shuffle_rows: int = 0,
        seed: int = 0,
        drop_remainder: bool = False,
        bad_rows: BadRows = "error",
        ahead: int | None = None,
        threads: int | None = None,
        memory_ahead: int = MEMORY_AHEAD,
        prepare: Prepare[T] | Callable[[Batch], T] | None = None,
        negatives: Callable[[Reader], Sampler] | None = None,
    ) -> None:
        """Open the source and check its columns; iterating reads the rows.

        Args:
          source: the source of rows.
          features: the model's inputs.
          batch_size: rows per batch.
          labels: the labels, by column name or as `Label`.
          weights: columns of sample weights.
          keys: columns of integers or strings that group rows, such as sessions.
          epochs: passes over the data; None: no end.
          shuffle_rows: rows that are shuffled together, at least; 0: rows come in the source's order.
          seed: the seed of the shuffle.
          drop_remainder: whether an epoch's last rows are left out if they fill no batch.
          bad_rows: the policy for malformed rows: "error", or "skip" to leave them out and count them (`skipped`).
          ahead: batches that are made early; None: enough for two more tasks than threads; 0: each is made when it is
            requested.
          threads: the number of threads that make them; None: the cores less two, at least one. A loop that waits for a
            batch makes some itself, unless `Prepare.loop_only_waits`; it never reads.
          memory_ahead: bytes that rows made early may take, about. One window is always made.
          prepare: called on each batch in one of those threads, or in the one that waits for it, such as to pack it;
            iterating yields its result. Work that depends on the order of batches needs a `Prepare`.
          negatives: makes the sampler of negatives, from the opened source.
        """
        fields.integer("batch_size", batch_size)
        fields.integer("epochs", 1 if epochs is None else epochs)
        for field, value in (("shuffle_rows", shuffle_rows), ("seed", seed), ("ahead", 0 if ahead is None else ahead)):
            fields.integer(field, value, at_least=0, at_most=math.inf)
        for field, value in (("threads", 1 if threads is None else threads), ("memory_ahead", memory_ahead)):
            fields.integer(field, value, at_least=1, at_most=math.inf)
        self.batch_size = batch_size
        self.epochs = epochs
        self.shuffle_rows = shuffle_rows
        self.seed = seed
        self.threads = default_threads() if threads is None else threads
        self.ahead = ahead
        self.memory_ahead = memory_ahead
        self.stages = Stages()
        self.waited = 0.0
        self.counts_waits = True
        self.interrupted: Callable[[], bool] = lambda: False
        self.is_idle: Callable[[], bool] = lambda: True
        self.drop_remainder = drop_remainder
        if bad_rows not in ("error", "skip"):
            raise ValueError(f"bad_rows must be 'error' or 'skip', got {bad_rows!r}")
        self.bad_rows: BadRows = bad_rows
        self.prepare = prepare
        for field, names in (("labels", labels), ("weights", weights), ("keys", keys)):
            if isinstance(names, str):
                raise ValueError(f"{field} must be a list of columns, got the string {names!r}; write [{names!r}]")
        self.features, self.keys = tuple(features), tuple(keys)
        as_labels = [label if isinstance(label, Label) else Label(label) for label in labels]
        self._converter = Converter(self.features, as_labels, weights, keys)
        self._reader = source.open(self._converter.columns)
        if not self._reader.num_chunks:
            raise DataError("there are no rows", self._reader.schemas[0][0])
        self._converter.check(self._reader)
        self._negatives = None if negatives is None else negatives(self._reader)
        fingerprint = self._reader.fingerprint
        if self._negatives is not None:
            fingerprint += f" with negatives {self._negatives.fingerprint}"
        self._reading = Reading(
            *(self._reader, self._converter, self.stages, self.bad_rows, epochs, shuffle_rows, seed),
            least=batch_size if drop_remainder else 1,
        )
        self.division = Division()
        self._start = self._at = Position(source=fingerprint, seed=self.seed, shuffle_rows=self.shuffle_rows)
        self._skipped = 0

    def divide(self, division: Division) -> None:
        """Read the shares of the data that this process needs for its rows of each batch, and no other rows."""
        if self._negatives is not None:
            raise ValueError("negatives are drawn for complete batches; the data cannot be divided")
        self.division = division
        shares = (SharePosition(0, 0, 0, 0),) * division.shares if division.shares > 1 else ()
        self._start = self._at = dataclasses.replace(self._start, shares=shares)

    @property
    def own_rows(self) -> int:
        """The rows of a complete batch that this process takes."""
        return sum(one.end - one.begin for one in self.division.own(self.batch_size))

    @property
    def id_kinds(self) -> dict[str, str]:
        """Whether each column of `Feature.typed_columns` holds integers or strings; others are not listed."""
        _, held = self._reader.schemas[0]
        columns = dict.fromkeys(column for feature in self.features for column in feature.typed_columns)
        return {column: kind for column in columns if (kind := kind_of(held[column])) is not None}

    def position(self) -> dict[str, Any]:
        """Return the position of the next batch; plain values, for a checkpoint."""
        return self._at.to_dict()

    def restore(self, position: Mapping[str, Any]) -> None:
        """Make the next ``iter`` continue from ``position``: it yields exactly the batches that would have followed."""
        wanted = Position.from_dict(position)
        for field, meaning in (("source", "other data"), ("seed", "another seed"), ("shuffle_rows", "another shuffle")):
            if getattr(wanted, field) != getattr(self._at, field):
                raise ValueError(
                    f"this position was taken with {meaning} ({field} {getattr(wanted, field)!r}, here "
                    f"{getattr(self._at, field)!r}); resume with the same data and settings, or start again"
                )
        count = max(len(wanted.shares), 1)
        if self.batch_size % count:
            raise ValueError(f"a batch of {self.batch_size} rows cannot be divided in {count} shares")
        self.division = self.division._replace(shares=count)  # the order of rows depends on it
        self._start = self._at = wanted
        self._skipped = wanted.skipped

    def batches_per_epoch(self) -> int | None:
        """Return the batches in one pass over the data, if no row is malformed; None: not known before reading.

        The rows of text files are counted, which reads every byte.
        """
        rows = self._reader.num_rows
        return None if rows is None else rows // self.batch_size if self.drop_remainder else -(-rows // self.batch_size)

    @property
    def epochs_begun(self) -> int:
        """The number of epochs that were complete when the last batch began."""
        # After the last rows of an epoch that fill no batch, the position is already the start of the next one.
        return self._at.epoch - (self._at.row == 0)

    @property
    def skipped(self) -> int:
        """Malformed rows that were left out so far, in all epochs."""
        return self._skipped

    def __iter__(self) -> Iterator[T]:
        start = self._start
        begin = tuple(SharePosition(0, 0, 0, 0) for _ in start.shares)
        self._start = dataclasses.replace(start, epoch=0, chunk=0, row=0, batches=0, skipped=0, shares=begin)
        self._at, self._skipped = start, start.skipped
        memory = Memory(self.memory_ahead)
        seen: dict[int, Window] = {}  # the last window of each share
        with contextlib.ExitStack() as stack:
            crew = None
            if self.ahead != 0:
                stack.callback(feed.pool.trim)
                crew = Crew(self.threads)
                stack.callback(crew.close)

            ahead, size = self._groups

            def groups() -> Generator[tuple[Task[Made[T]], list[Cut]], None, None]:
                turns = Turns(start.batches + 1, lambda: crew is not None and crew.is_closed)
                for group in together(self._cuts(start, crew, memory, seen), size):
                    yield do(crew, functools.partial(self._make, group, turns)), group

            helps = crew is not None and not (isinstance(self.prepare, Prepare) and self.prepare.loop_only_waits)

            def wait(until: Until) -> None:
                self._wait(until, crew.help if crew is not None and helps else _no_work)

            made = stack.enter_context(contextlib.closing(prefetch(groups, ahead, wait) if ahead else groups()))
            if crew is not None:
                stack.callback(crew.stop)  # stops first, because the thread that cuts batches may wait for a chunk
            for task, group in made:
                wait(task.wait)
                batches, error = task.result()
                for batch, cut in zip(batches, group, strict=False):
                    memory.add(-cut.freed)
                    self._at, self._skipped = cut.after, cut.skipped
                    yield batch
                if error is not None:
                    raise error
        if seen:
            self._skipped = sum(window.start.skipped + window.skipped for window in seen.values())

    def _cuts(self, start: Position, crew: Crew | None, memory: Memory, seen: dict[int, Window]) -> Iterator[Cut]:
        """Return the batches from ``start`` on, before they are made."""
        division = self.division

        def windows(share: int, start: Position) -> Iterator[Window]:
            for window in self._reading.windows(start, crew, memory, share, division.shares):
                seen[share] = window
                yield window

        if division.shares == division.processes == 1:
            return cuts(windows(0, start), start, self.batch_size, self.drop_remainder)
        shares, start = {}, start.divided()
        for share, begin, _ in division.own(self.batch_size):
            at = start.of_share(share)
            made = windows(share, at)
            if division.peers is not None and self._reading.rows is None and not begin:
                made = told(made, share, at, start.epoch, division)
            shares[share] = cuts(made, at, self.batch_size // division.shares, drop_remainder=False)
        reading = self._reading
        merged = Merged(
            *(division, self.batch_size, self.drop_remainder, self.epochs, reading.rows, reading.too_few),
            some_window=lambda: next(iter(seen.values()), None) or reading.empty(start),
            is_over=lambda: crew is not None and crew.is_closed,
        )
        return merged.cuts(start, shares)

    @property
    def batches_ahead(self) -> int:
        """The number of batches that are made early."""
        groups, size = self._groups
        return groups * size

    @property
    def _groups(self) -> tuple[int, int]:
        """The number of groups of batches that are made early, and the batches of one: a task makes a group."""
        most, layout = 1, self._converter.layout
        if isinstance(self.prepare, Prepare) and layout is not None:
            most = self.prepare.together(self.batch_size, layout)
        if self.ahead is None:
            return self.threads + 2, most
        size = max(min(most, self.ahead), 1)
        return -(-self.ahead // size), size

    def _wait(self, until: Until, work: Callable[[], bool]) -> None:
        if self.counts_waits:
            self.wait(until, work)
        else:
            self._until(until, work)

    def wait(self, until: Until, work: Callable[[], bool] = _no_work) -> None:
        """Wait until ``until(seconds)`` is true; raise `WaitInterrupted` where a stop was requested.

        The time counts as waited from when the device has nothing left to do. From then on, ``work`` does a piece of
        the work that is waited for, and returns whether there was any.
        """
        if until(0):
            return
        while not self.is_idle():
            if until(0.0002):
                return
        began = time.perf_counter()
        try:
            self._until(until, work)
        finally:
            self.waited += time.perf_counter() - began

    def _until(self, until: Until, work: Callable[[], bool]) -> None:
        while not until(0):
            if work():
                continue
            if until(0.2):
                return
            if self.interrupted():
                raise WaitInterrupted

    def _make(self, group: list[Cut], turns: Turns) -> Made[T]:
        """Make some batches. Called by any thread."""

        def leave() -> None:
            for cut in group:
                turns.leave(cut.number)

        def in_turn(function: Callable[[], Any]) -> Any:
            made = turns.take(group[0].number, function)
            leave()  # other threads go on before the batches are finished
            return made

        given, failure = list[list[Block] | Batch](), None
        try:
            for cut in group:
                given.append(self._given(cut))
        except Exception as error:  # arrives after the batches before it
            failure = error
        try:
            made = self._prepare.make(given, in_turn)
        except Exception as error:
            made = Made([], error)
        finally:
            leave()
        return made if made.error is not None else made._replace(error=failure)

    @property
    def _prepare(self) -> Prepare[T]:
        prepare = self.prepare
        if isinstance(prepare, Prepare):
            return prepare
        return OneByOne(cast("Callable[[Batch], T]", _unchanged if prepare is None else prepare))

    def _given(self, cut: Cut) -> list[Block] | Batch:
        """Return the rows of a batch, or its columns with negatives."""
        rows = self._rows(cut)
        return rows if self._negatives is None else self._negatives.add(concatenate(rows).to_batch(), cut.number)

    def _rows(self, cut: Cut) -> list[Block]:
        """Return the rows of a batch, padded where the preparation asks for it."""
        blocks = [piece.rows() for piece in cut.pieces]
        missing = self.own_rows - sum(map(len, blocks))
        pads = isinstance(self.prepare, Prepare) and self.prepare.pads
        if missing and pads and (self.own_rows < self.batch_size or not cut.begins_epoch):
            blocks.append(blocks[0].nothing(missing))
        return blocks
