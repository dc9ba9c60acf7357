"""`Pipeline`: batches from a source, shuffled, made ahead in the background, resumable at any batch.

The order of rows is a pure function of the seed, the epoch and the source's chunks: an epoch visits the chunks in a
seeded order, joins them to windows of at least ``shuffle_rows`` rows, and shuffles each window. So a position is a few
numbers, and going back to it reads one window. (Grain shuffles and hands over single elements; for columns that are
read and converted by the ten thousand rows it would add a process and a dependency to what is one thread here.)
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

from sparrow import fields
from sparrow.data.batch import Batch
from sparrow.data.block import Block, concatenate
from sparrow.data.converter import Converter
from sparrow.data.errors import DataError
from sparrow.data.features import Feature
from sparrow.data.hashing import shuffled
from sparrow.data.labels import Label
from sparrow.data.negatives import NegativeSampler
from sparrow.data.position import Position
from sparrow.data.prefetch import prefetch
from sparrow.data.sources.base import BadRows, Reader, Source

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Window:
    """Converted rows in their final order, and the position of the first of them."""

    rows: Block
    start: Position
    skipped: int  # malformed rows among those read for it


class Pipeline(Generic[T]):
    """Iterates batches. Each ``iter`` starts at the beginning, or where `restore` said.

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
        ahead: int = 2,
        prepare: Callable[[Batch], T] | None = None,
        negatives: Callable[[Reader], NegativeSampler] | None = None,
    ) -> None:
        """Opens the source and checks its columns; rows are read by iterating.

        Args:
          source: where rows come from.
          features: the model's inputs.
          batch_size: rows per batch.
          labels: what to predict, by column name or as `Label`.
          weights: columns of sample weights.
          keys: columns of integers or texts that group rows, such as sessions.
          epochs: passes over the data; None: no end.
          shuffle_rows: rows that are shuffled among each other, at least; 0: rows come in the source's order.
          seed: of the shuffle.
          drop_remainder: whether an epoch's last rows are left out if they fill no batch.
          bad_rows: a malformed row is an "error", or is left out and counted ("skip", see `skipped`).
          ahead: batches that are made early, in a thread of their own; 0: everything is done when asked for.
          prepare: called on each batch in that thread, such as to pack it; its result is what iterating gives.
          negatives: makes what draws negatives for each batch, from the opened source.
        """
        fields.integer("batch_size", batch_size)
        fields.integer("epochs", 1 if epochs is None else epochs)
        for field, value in (("shuffle_rows", shuffle_rows), ("seed", seed), ("ahead", ahead)):
            fields.integer(field, value, at_least=0, at_most=math.inf)
        self.batch_size = batch_size
        self.epochs = epochs
        self.shuffle_rows = shuffle_rows
        self.seed = seed
        self.ahead = ahead
        self.drop_remainder = drop_remainder
        if bad_rows not in ("error", "skip"):
            raise ValueError(f"bad_rows must be 'error' or 'skip', got {bad_rows!r}")
        self.bad_rows: BadRows = bad_rows
        self.prepare = prepare
        for field, names in (("labels", labels), ("weights", weights), ("keys", keys)):
            if isinstance(names, str):
                raise ValueError(f"{field} must be a list of columns, got the text {names!r}; write [{names!r}]")
        self.features = tuple(features)
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
        self._start = self._at = Position(source=fingerprint, seed=self.seed, shuffle_rows=self.shuffle_rows)
        self._skipped = 0

    def position(self) -> dict[str, Any]:
        """Where the next batch starts; plain values, for a checkpoint."""
        return self._at.to_dict()

    def restore(self, position: Mapping[str, Any]) -> None:
        """Makes the next ``iter`` go on from ``position``: it gives exactly the batches that would have followed."""
        wanted = Position.from_dict(position)
        for field, meaning in (("source", "other data"), ("seed", "another seed"), ("shuffle_rows", "another shuffle")):
            if getattr(wanted, field) != getattr(self._at, field):
                raise ValueError(
                    f"this position was taken with {meaning} ({field} {getattr(wanted, field)!r}, here "
                    f"{getattr(self._at, field)!r}); resume with the same data and settings, or start anew"
                )
        self._start = self._at = wanted
        self._skipped = wanted.skipped

    def batches_per_epoch(self) -> int | None:
        """How many batches one pass over the data gives, if no row is malformed; None: only reading it would tell.

        The rows of text files are counted, which takes a look at every byte.
        """
        rows = self._reader.num_rows
        return None if rows is None else rows // self.batch_size if self.drop_remainder else -(-rows // self.batch_size)

    @property
    def skipped(self) -> int:
        """Malformed rows that were left out so far, in all epochs."""
        return self._skipped

    def __iter__(self) -> Iterator[T]:
        start = self._start
        self._start = dataclasses.replace(start, epoch=0, chunk=0, row=0, batches=0, skipped=0)
        self._at, self._skipped = start, start.skipped

        skipped_in_all = start.skipped  # of every window read: those after the last batch count too

        def windows() -> Generator[Window, None, None]:
            nonlocal skipped_in_all
            for window in self._windows(start):
                skipped_in_all = window.start.skipped + window.skipped
                yield window

        def batches() -> Generator[tuple[T, Position, int], None, None]:
            with contextlib.closing(prefetch(windows, 1) if self.ahead else windows()) as made:
                yield from self._batches(made, start)

        with contextlib.closing(prefetch(batches, self.ahead) if self.ahead else batches()) as made:
            for batch, after, skipped in made:
                self._at, self._skipped = after, skipped
                yield batch
        self._skipped = skipped_in_all

    def _windows(self, start: Position) -> Generator[Window, None, None]:
        """Windows of converted rows, from the one that ``start`` is in."""
        epoch, chunk, skipped = start.epoch, start.chunk, start.skipped
        while self.epochs is None or epoch < self.epochs:
            count = self._reader.num_chunks
            order = shuffled(count, self.seed, epoch) if self.shuffle_rows else range(count)
            is_whole, usable = chunk == 0, 0
            while chunk < count:
                first, before = chunk, skipped
                parts: list[Block] = []
                while chunk < count and (not parts or sum(map(len, parts)) < self.shuffle_rows):
                    part, bad = self._converter.convert(
                        self._reader.read(int(order[chunk]), self.bad_rows), self.bad_rows
                    )
                    parts.append(part)
                    skipped += bad
                    chunk += 1
                rows = concatenate(parts)
                usable += len(rows)
                if self.shuffle_rows:  # column by column, which stays in the cache; batch by batch would not
                    rows = rows.take(shuffled(len(rows), self.seed, epoch, first))
                at = dataclasses.replace(start, epoch=epoch, chunk=first, row=0, skipped=before)
                yield Window(rows, at, skipped - before)
            if is_whole and usable < (self.batch_size if self.drop_remainder else 1):
                raise DataError(self._too_few(usable), self._reader.schemas[0][0])
            epoch, chunk = epoch + 1, 0

    def _too_few(self, usable: int) -> str:
        if not usable:
            return "no row can be used: every one is malformed; set bad_rows to 'error' to see why"
        return (
            f"the {usable} rows that can be used do not fill a batch of {self.batch_size}, and drop_remainder leaves "
            "them out; lower batch_size, or keep the remainder"
        )

    def _batches(self, windows: Iterator[Window], start: Position) -> Iterator[tuple[T, Position, int]]:
        """Batches, each with the position after it and the malformed rows up to there."""
        size, count, taken = self.batch_size, start.batches, start.row
        held: list[tuple[Block, Position]] = []  # rows that wait for more, and where they start
        for window in windows:
            rows, at, end = window.rows, window.start, len(window.rows)
            seen = window.start.skipped + window.skipped
            if held and held[0][1].epoch != at.epoch:
                yield from self._rest(held, at, count, seen - window.skipped)
                count += bool(held) and not self.drop_remainder
                held = []
            waiting = sum(len(part) for part, _ in held)
            while waiting + end - taken >= size:
                more = size - waiting
                parts = [part for part, _ in held] + [rows.cut(taken, taken + more)]
                taken, waiting, held = taken + more, 0, []
                count += 1
                yield self._prepared(concatenate(parts), count), dataclasses.replace(at, row=taken, batches=count), seen
            if taken < end:
                held.append((rows.cut(taken, end), dataclasses.replace(at, row=taken)))
            taken = 0
        if held:
            last = dataclasses.replace(held[0][1], epoch=held[0][1].epoch + 1, chunk=0, row=0, skipped=seen)
            yield from self._rest(held, last, count, seen)

    def _rest(
        self, held: Sequence[tuple[Block, Position]], after: Position, count: int, seen: int
    ) -> Iterator[tuple[T, Position, int]]:
        """The last rows of an epoch."""
        if held and not self.drop_remainder:
            rows = concatenate([part for part, _ in held])
            yield self._prepared(rows, count + 1), dataclasses.replace(after, row=0, batches=count + 1), seen

    def _prepared(self, rows: Block, number: int) -> T:
        batch = rows.to_batch()
        if self._negatives is not None:
            batch = dataclasses.replace(batch, negatives=self._negatives.draw(number))
        return cast("T", batch) if self.prepare is None else self.prepare(batch)
