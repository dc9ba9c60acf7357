"""`Batching`: how rows become batches, and how early; `Position`: the exact position of a run among them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sparrow import fields
from sparrow.data import BadRows
from sparrow.feed.watermark import EventTime

MEMORY_AHEAD: Final = 2**31
"""Default of the bytes that rows made early may take."""


class Cost(NamedTuple):
    """A limit of the rows of a batch: the sum of a column, among the sample weights, is at most ``limit``."""

    column: str
    limit: float


@dataclasses.dataclass(frozen=True)
class Batching:
    """How rows become batches, and how early.

    Attributes:
      batch_size: rows per batch.
      epochs: passes over the data; None: no end.
      shuffle_rows: rows that are shuffled together, at least; 0: rows come in the source's order.
      seed: the seed of the shuffle.
      drop_remainder: whether an epoch's last rows are left out if they fill no batch.
      cost: ends a batch before the sum of a column exceeds a limit; None: batches end with their rows.
      bad_rows: the policy for malformed rows: "error", or "skip" to leave them out and count them.
      dead_letters: the file that rows which are left out are added to, with their reasons; None: they are counted.
      event_time: the time of rows, for the watermark of a source that grows; None: it has none.
      ahead: batches that are made early; None: enough for two more tasks than threads; 0: each is made when it is
        requested.
      threads: the number of threads that make them; None: the cores less two, at least one. A loop that waits for a
        batch makes some itself, unless `Prepare.loop_only_waits`; it never reads.
      memory_ahead: bytes that rows made early may take, about. One window is always made.
    """

    batch_size: int
    epochs: int | None = 1
    shuffle_rows: int = 0
    seed: int = 0
    drop_remainder: bool = False
    cost: Cost | None = None
    bad_rows: BadRows = "error"
    dead_letters: str | None = None
    event_time: EventTime | None = None
    ahead: int | None = None
    threads: int | None = None
    memory_ahead: int = MEMORY_AHEAD

    def __post_init__(self) -> None:
        fields.integer("batch_size", self.batch_size)
        fields.integer("epochs", 1 if self.epochs is None else self.epochs)
        least = {"shuffle_rows": 0, "seed": 0, "memory_ahead": 1, "ahead": 0, "threads": 1}
        for field, bound in least.items():
            if not (field in ("ahead", "threads") and getattr(self, field) is None):
                fields.integer(field, getattr(self, field), at_least=bound, at_most=math.inf)
        if self.bad_rows not in ("error", "skip"):
            raise ValueError(f"bad_rows must be 'error' or 'skip', got {self.bad_rows!r}")

    @property
    def least(self) -> int:
        """The usable rows that an epoch must have."""
        return self.batch_size if self.drop_remainder else 1


class SharePosition(NamedTuple):
    """The position in one share of the data; the numbers mean what those of `Position` do."""

    epoch: int
    chunk: int
    row: int
    skipped: int


@dataclasses.dataclass(frozen=True)
class Position:
    """The start of the next batch, in plain values, so that a checkpoint can hold it as JSON.

    Attributes:
      epoch: passes over the data that are complete.
      chunk: the window that the next row is in starts with the chunk-th chunk of the epoch's order.
      row: the number of the next row in that window; of several shares, the batches of this epoch so far.
      batches: the batches so far, in all epochs.
      skipped: malformed rows in the windows before this one, in all epochs.
      source: fingerprint of the data.
      seed, shuffle_rows: the options that the order of rows depends on.
      shares: the position in each share of the data, where there are several; None: of a share that other processes
        read.
      stream: the place of the chunk in a source that grows, and its `Watermark`; None: other sources.
    """

    epoch: int = 0
    chunk: int = 0
    row: int = 0
    batches: int = 0
    skipped: int = 0
    source: str = ""
    seed: int = 0
    shuffle_rows: int = 0
    shares: tuple[SharePosition | None, ...] = ()
    stream: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "shares": [None if own is None else list(own) for own in self.shares]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Position:
        """Return the position of a mapping from `to_dict`."""
        fields = {field.name: field.type for field in dataclasses.fields(cls)}
        if set(data) | {"shares", "stream"} != set(fields):
            raise ValueError(f"a data position holds {', '.join(fields)}; got {', '.join(map(str, data))}")
        return cls(**{**data, "shares": tuple(map(_share, data.get("shares", ())))})

    def divided(self) -> Position:
        """Return the position with that of each share, also of a single one."""
        return self if self.shares else dataclasses.replace(self, shares=(self.as_share(),))

    def as_share(self) -> SharePosition:
        return SharePosition(self.epoch, self.chunk, self.row, self.skipped)

    def of_share(self, share: int) -> Position:
        """Return the position in one share, whose epochs and rows are counted by themselves."""
        own = self.shares[share]
        if own is None:
            raise ValueError(f"this position does not hold share {share} of the data")
        return dataclasses.replace(self, **own._asdict(), shares=())


def _share(numbers: Sequence[int] | None) -> SharePosition | None:
    if numbers is None:
        return None
    if len(numbers) != len(SharePosition._fields) or not all(type(number) is int for number in numbers):
        raise ValueError(f"the position in a share holds {', '.join(SharePosition._fields)}; got {numbers!r}")
    return SharePosition(*numbers)
