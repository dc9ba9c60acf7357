"""`Pipeline`: batches from a source, shuffled, made ahead in the background, resumable at any batch.

The order of rows is a pure function of the seed, the epoch and the source's chunks: an epoch visits the chunks in a
seeded order, joins them to windows of at least ``shuffle_rows`` rows, and shuffles each window. So a position is a few
numbers, and restoring it reads one window. A batch is handed over twice: threads that read give windows to threads that
make batches of them, and these give batches to the loop, in order: the number of threads changes nothing but the speed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

from sparrow.background import Until, prefetch
from sparrow.data import (
    Batch,
    Block,
    Converter,
    DataError,
    GrowingReader,
    Order,
    Reader,
    Sampler,
    Source,
    concatenate,
    kind_of,
)
from sparrow.feed.batching import Batching, Position, SharePosition
from sparrow.feed.crew import NAME, Crew, Job, default_threads, do, join
from sparrow.feed.cuts import Cut, Merged, announced, cuts, together
from sparrow.feed.prepare import Made, OneByOne, Prepare, Turns
from sparrow.feed.reading import Memory, Reading, WaitInterrupted, Window
from sparrow.feed.shares import Division
from sparrow.feed.stages import Stages
from sparrow.feed.watermark import Watermark
from sparrow.kernels import feed

T = TypeVar("T")


def _no_work() -> bool:
    return False


class Waits:
    """How a loop waits for batches; ``seconds``: that they were waited for, while the device was idle.

    ``is_idle`` returns whether the device is, as far as the loop knows, ``interrupted`` whether to stop waiting;
    ``idle`` is called now and then while a batch is waited for.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_idle: Callable[[], bool] = lambda: True
        self.interrupted: Callable[[], bool] = lambda: False
        self.idle: Callable[[], None] = lambda: None

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
            while not until(0):
                if work():
                    continue
                if until(0.2):
                    return
                if self.interrupted():
                    raise WaitInterrupted
                self.idle()
        finally:
            self.seconds += time.perf_counter() - began


class Pipeline(Generic[T]):
    """Batches of a source. Each ``iter`` starts at the beginning, or at the position of `restore`.

    Attributes:
      converter: the columns that are read, and what they mean.
      batching: how rows become batches.
      prepare: the work on each batch.
      waits: how the loop waits for batches.
      stages: the time that reading, decoding and converting take.
      threads: the number of threads that make batches.
      division: the shares of the data, and the ones that this process reads.
      skipped: malformed rows that were left out so far, in all epochs.
      late: rows of a source that grows that were late so far, by its event time.

    >>> from sparrow.data import IdFeature, Tables
    >>> table = Tables({"item": [1, 2, 3, 4, 5], "click": [0, 1, 0, 1, 1]})
    >>> columns = Converter([IdFeature("item", num_buckets=10, embedding_dim=4)], labels=["click"])
    >>> [batch.ids["item"].tolist() for batch in Pipeline(table, columns, Batching(2))]
    [[1, 2], [3, 4], [5]]
    """

    def __init__(
        self,
        source: Source,
        converter: Converter,
        batching: Batching,
        *,
        prepare: Prepare[T] | Callable[[Batch], T] | None = None,
        negatives: Callable[[Reader], Sampler] | None = None,
    ) -> None:
        """Open the source and check its columns; iterating reads the rows.

        Args:
          source: the source of rows.
          converter: the columns to read: features, labels, weights and keys.
          batching: how rows become batches.
          prepare: called on each batch in a thread that makes it, or in the one that waits for it, such as to pack it;
            iterating yields its result. Work that depends on the order of batches needs a `Prepare`.
          negatives: makes the sampler of negatives, from the opened source.
        """
        self.converter, self.batching, self.prepare = converter, batching, prepare
        self.threads = batching.threads or default_threads()
        self.stages, self.waits, self.division = Stages(), Waits(), Division()
        self._reader = source.open(converter.columns)
        if not self._reader.num_chunks and not self._reader.grows:
            raise DataError("there are no rows", self._reader.schemas[0][0])
        if self._reader.grows and batching.epochs not in (None, 1):
            raise DataError("a source that grows has no second epoch; set epochs to 1", self._reader.schemas[0][0])
        converter.check(self._reader)
        self._negatives = None if negatives is None else negatives(self._reader)
        fingerprint = self._reader.fingerprint
        if self._negatives is not None:
            fingerprint += f" with negatives {self._negatives.fingerprint}"
        self._memory = Memory(batching.memory_ahead)
        self._reading = Reading(self._reader, converter, batching, self.stages)
        self._start = self._at = Position(source=fingerprint, seed=batching.seed, shuffle_rows=batching.shuffle_rows)
        self.skipped = self.late = 0
        self._watermark: Watermark | None = None  # of a source that grows; it is as far as reading is

    def divide(self, division: Division) -> None:
        """Read the shares of the data that this process needs for its rows of each batch, and no other rows."""
        if self._reader.grows and division.shares > 1:
            raise ValueError("every process reads all of a source that grows; give one share")
        if self._negatives is not None or self.batching.cost is not None:
            raise ValueError("negatives, masks and costs need complete batches; the data cannot be divided")
        self.division = division
        shares = (SharePosition(0, 0, 0, 0),) * division.shares if division.shares > 1 else ()
        self._start = self._at = dataclasses.replace(self._start, shares=shares)

    @property
    def own_rows(self) -> int:
        """The rows of a complete batch that this process takes."""
        return sum(one.end - one.begin for one in self.division.own(self.batching.batch_size))

    @property
    def id_kinds(self) -> dict[str, str]:
        """Whether each column of `Feature.typed_columns` holds integers or strings; others are not listed."""
        _, held = self._reader.schemas[0]
        columns = dict.fromkeys(column for feature in self.converter.features for column in feature.typed_columns)
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
        if isinstance(self._reader, GrowingReader) and wanted.stream is not None:
            self._reader.seek(wanted.chunk, wanted.stream)
        count = max(len(wanted.shares), 1)
        if self.batching.batch_size % count:
            raise ValueError(f"a batch of {self.batching.batch_size} rows cannot be divided in {count} shares")
        self.division = self.division._replace(shares=count)  # the order of rows depends on it
        self._start = self._at = wanted
        self.skipped, self.late = wanted.skipped, (wanted.stream or {}).get("late", 0)

    def agree(self, order: Order) -> None:
        """Read the entries of a source that grows in the order of all processes. The first one writes dead letters."""
        assert self.stream is not None
        self.stream.agree(order)
        if not order.is_first:
            quiet = dataclasses.replace(self.batching, dead_letters=None)
            self._reading = dataclasses.replace(self._reading, batching=quiet)

    def batches_per_epoch(self) -> int | None:
        """Return the batches in one pass over the data, if no row is malformed; None: not known before reading.

        The rows of text files are counted, which reads every byte.
        """
        rows, size = None if self.batching.cost else self._reader.num_rows, self.batching.batch_size
        return None if rows is None else rows // size if self.batching.drop_remainder else -(-rows // size)

    @property
    def epochs_begun(self) -> int:
        """The number of epochs that were complete when the last batch began."""
        # After the last rows of an epoch that fill no batch, the position is already the start of the next one.
        return max(self._at.epoch - (self._at.row == 0), 0)

    @property
    def stream(self) -> GrowingReader | None:
        return self._reader if isinstance(self._reader, GrowingReader) else None

    def __iter__(self) -> Iterator[T]:
        if self.batching.cost is not None and isinstance(self.prepare, Prepare) and not self.prepare.pads:
            raise ValueError(
                "batches by cost have fewer rows than batch_size and are padded, but examples of a batch of this model "
                "depend on each other; remove cost"
            )
        start = self._start
        begin = tuple(SharePosition(0, 0, 0, 0) for _ in start.shares)
        self._start = dataclasses.replace(start, epoch=0, chunk=0, row=0, batches=0, skipped=0, shares=begin)
        self._at, self.skipped = start, start.skipped
        memory = self._memory = Memory(self.batching.memory_ahead, self._memory.chunk)
        seen: dict[int, Window] = {}  # the last window of each share
        with contextlib.ExitStack() as stack:
            crew = None
            if self.batching.ahead != 0:
                stack.callback(feed.pool.trim)
                crew = Crew(self.threads)
                stack.callback(crew.close)

            ahead, size = self._groups

            def groups() -> Generator[tuple[Job[Made[T]], list[Cut]], None, None]:
                turns = Turns(start.batches + 1, lambda: crew is not None and crew.is_closed)
                for group in together(self._cuts(start, crew, memory, seen), size):
                    yield do(crew, functools.partial(self._make, group, turns)), group

            work = _no_work if crew is None or self._prepare.loop_only_waits else crew.help

            def wait(until: Until) -> None:
                self.waits.wait(until, work)

            made = groups()
            if ahead:
                made = prefetch(groups, ahead, name=NAME, end=lambda thread, _: join([thread]), wait=wait)
            stack.enter_context(contextlib.closing(made))
            if crew is not None:
                stack.callback(crew.stop)  # stops first, because the thread that cuts batches may wait for a chunk
            for job, group in made:
                wait(job.wait)
                batches, error = job.result()
                for batch, cut in zip(batches, group, strict=False):
                    memory.add(-cut.freed)
                    self._at, self.skipped, self.late = cut.after, cut.skipped, cut.late
                    yield batch
                if error is not None:
                    raise error
        if self._watermark is not None:
            self.late = self._watermark.late
        if seen:
            self.skipped = sum(window.start.skipped + window.skipped for window in seen.values())

    def _cuts(
        self, start: Position, crew: Crew | None, memory: Memory, seen: dict[int, Window]
    ) -> Iterator[Cut | None]:
        """Return the batches from ``start`` on, before they are made; None before one that must be waited for."""
        division, reading, batch_size = self.division, self._reading, self.batching.batch_size
        if self.stream is not None:

            def is_over() -> bool:
                return self.waits.interrupted() or (crew is not None and crew.is_closed)

            event_time = self.batching.event_time
            self._watermark = None if event_time is None else Watermark(event_time, start.stream)
            arriving = reading.growing(self.stream, start, crew, memory, is_over, self._watermark)
            return cuts(arriving, start, batch_size, self.batching.drop_remainder, self.batching.cost)

        def windows(share: int, start: Position) -> Iterator[Window]:
            for window in reading.windows(start, crew, memory, share, division.shares):
                seen[share] = window
                yield window

        if division.shares == division.processes == 1:
            return cuts(windows(0, start), start, batch_size, self.batching.drop_remainder, self.batching.cost)
        shares, start = {}, start.divided()
        for share, begin, _ in division.own(batch_size):
            at = start.of_share(share)
            made = windows(share, at)
            if division.peers is not None and reading.rows is None and not begin:
                made = announced(made, share, at, start.epoch, division)
            own = cuts(made, at, batch_size // division.shares, drop_remainder=False)
            shares[share] = (cut for cut in own if cut is not None)
        merged = Merged(
            *(reading, division),
            some_window=lambda: next(iter(seen.values()), None) or reading.empty(start),
            is_over=lambda: crew is not None and crew.is_closed,
        )
        return merged.cuts(start, shares)

    @property
    def batches_ahead(self) -> int:
        groups, size = self._groups
        return groups * size

    @property
    def _groups(self) -> tuple[int, int]:
        """The number of groups of batches that are made early, and the batches of one: a job makes a group."""
        ahead, layout = self.batching.ahead, self.converter.layout
        most = 1 if layout is None else self._prepare.together(self.batching.batch_size, layout)
        if ahead is None:
            return self.threads + 2, most
        size = max(min(most, ahead), 1)
        return -(-ahead // size), size

    def _make(self, group: list[Cut], turns: Turns) -> Made[T]:
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
        return OneByOne(prepare or (lambda batch: cast("T", batch)))

    def _given(self, cut: Cut) -> list[Block] | Batch:
        """Return the rows of a batch, or its columns with negatives."""
        rows = self._rows(cut)
        return rows if self._negatives is None else self._negatives.add(concatenate(rows).to_batch(), cut.number)

    def _rows(self, cut: Cut) -> list[Block]:
        """Return the rows of a batch, padded where the preparation asks for it."""
        blocks = [piece.rows() for piece in cut.pieces]
        missing = self.own_rows - sum(map(len, blocks))
        is_alone = cut.begins_epoch and self.own_rows == self.batching.batch_size and self.batching.cost is None
        is_alone &= self.stream is None
        if missing and self._prepare.pads and not is_alone:
            blocks.append(blocks[0].nothing(missing))
        return blocks
