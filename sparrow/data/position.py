"""`Position`: the exact position of a run in the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Position:
    """The start of the next batch, in plain values, so that a checkpoint can hold it as JSON.

    Attributes:
      epoch: passes over the data that are complete.
      chunk: the window that the next row is in starts with the chunk-th chunk of the epoch's order.
      row: the number of the next row in that window.
      batches: the batches so far, in all epochs.
      skipped: malformed rows in the windows before this one, in all epochs.
      source: fingerprint of the data.
      seed, shuffle_rows: the options that the order of rows depends on.
    """

    epoch: int = 0
    chunk: int = 0
    row: int = 0
    batches: int = 0
    skipped: int = 0
    source: str = ""
    seed: int = 0
    shuffle_rows: int = 0

    def to_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Position:
        """Return the position of a mapping from `to_dict`."""
        fields = {field.name: field.type for field in dataclasses.fields(cls)}
        if set(data) != set(fields):
            raise ValueError(f"a data position holds {', '.join(fields)}; got {', '.join(map(str, data))}")
        return cls(**data)
