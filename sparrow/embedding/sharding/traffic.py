"""`Traffic`: how much a batch sends between devices, how evenly, and how much of it is padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sparrow.embedding.sharding.measured import (
    COPIES,
    DISTINCT,
    ENTRIES,
    POOLED,
    ROWS,
    SUMS,
    WEIGHTED,
    RoutedBatch,
)


class Traffic(NamedTuple):
    """The exchange of one stack in one batch, as seen by this process.

    Attributes:
      exchange: "pooled", "rows" or "copies".
      vectors: sums of bags, or rows, that travel from each owner to each of this process's shards: (shards, owners). Of
        copies: the rows whose gradients travel, all of them.
      room: for each pair, padding included.
      sent: bytes that a device sends to others in a step: ids, values and gradients.
    """

    exchange: str
    vectors: np.ndarray[tuple[int, int], np.dtype[np.int32]]
    room: int
    sent: int

    @property
    def fullest(self) -> float:
        """The fullest pair over the mean; 1 is even."""
        return float(self.vectors.max() / max(self.vectors.mean(), 1e-9))

    @property
    def padding(self) -> float:
        """The share of the values sent that is padding."""
        return 1.0 - float(self.vectors.mean()) / self.room


def traffic(
    batch: RoutedBatch, room: Mapping[str, int], dims: Mapping[str, int], dtype: str = "float32"
) -> dict[str, Traffic]:
    """Return the traffic of each stack, for the room that the batch is packed with.

    ``dims``: the dim of each stack. ``dtype``: the dtype in which vectors travel.
    """
    made = {}
    item = 2 if dtype == "bfloat16" else 4
    for name, routed in batch.routed.items():
        size, layout = routed.size(name, room), batch.layouts[name]
        shards, width = layout.shards, dims[name] // layout.columns
        if layout.copies:
            rows = -(-layout.local_rows // shards)
            vectors = np.full((len(routed.parts), shards), rows, np.int32)
            made[name] = Traffic(COPIES, vectors, rows, (shards - 1) * rows * (width + 1) * (item + 4))
            continue
        if size[SUMS] and routed.pooled is not None:
            exchange, pair = POOLED, size[SUMS]
            vectors = np.stack([route.sums for route in routed.pooled])
            entries = size[ENTRIES]
            ids = 2 * entries + pair if entries else pair
            ids += (entries or pair) if size[WEIGHTED] else 0
        elif routed.rows is not None:
            exchange, pair = ROWS, size[DISTINCT]
            vectors = np.stack([route.rows for route in routed.rows])
            ids = pair
        else:
            raise ValueError(f"no room was given for the ids of stack '{name}'")
        made[name] = Traffic(exchange, vectors, pair, (shards - 1) * (4 * ids + 2 * item * pair * width))
    return made
