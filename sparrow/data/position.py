"""`Position`: the exact position of a run in the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


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

    def to_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {**vars(self), "shares": [None if own is None else list(own) for own in self.shares]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Position:
        """Return the position of a mapping from `to_dict`."""
        fields = {field.name: field.type for field in dataclasses.fields(cls)}
        if set(data) | {"shares"} != set(fields):
            raise ValueError(f"a data position holds {', '.join(fields)}; got {', '.join(map(str, data))}")
        return cls(**{**data, "shares": tuple(map(_share, data.get("shares", ())))})

    def divided(self) -> Position:
        """Return the position with that of each share, also of a single one."""
        return self if self.shares else dataclasses.replace(self, shares=(self.as_share(),))

    def as_share(self) -> SharePosition:
        """Return a position in a single share."""
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
