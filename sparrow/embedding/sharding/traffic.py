"""`Traffic`: how much a batch sends between devices, how evenly, and how much of it is padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sparrow.embedding.sharding.complete_rows import is_by_element, shared_rows
from sparrow.embedding.sharding.measured import COPIES, DISTINCT, ENTRIES, POOLED, ROWS, SUMS, WEIGHTED, RoutedBatch
from sparrow.embedding.sharding.shards import GATHERED
from sparrow.kernels import RowStep
from sparrow.rules import PER_ROW


class Traffic(NamedTuple):
    """The exchange of one stack in one batch, as seen by this process.

    Attributes:
      exchange: "pooled", "rows" or "copies".
      vectors: sums of bags, or rows, that travel from each owner to each of this process's shards: (shards, owners). Of
        copies: the rows whose gradients travel, all of them.
      room: for each pair, padding included.
      sent: bytes that a device sends to others in a step: ids, values, gradients, and rows that rules need complete.
      collectives: of a step.
    """

    exchange: str
    vectors: np.ndarray[tuple[int, int], np.dtype[np.int32]]
    room: int
    sent: int
    collectives: int

    @property
    def fullest(self) -> float:
        """The fullest pair over the mean; 1 is even."""
        return float(self.vectors.max() / max(self.vectors.mean(), 1e-9))

    @property
    def padding(self) -> float:
        """The share of the values sent that is padding."""
        return 1.0 - float(self.vectors.mean()) / self.room


def exchanged_bytes(
    exchange: str, shards: int, width: int, pair: int, entries: int, *, weighted: bool = False, item: int = 4
) -> int:
    """Return the bytes that a device sends in a step for one stack: ids, values and gradients. The only count of them.

    Args:
      exchange: "pooled" or "rows".
      shards: the number of devices.
      width: numbers of a row, or of a piece of it.
      pair: sums or rows of each pair of devices, padding included.
      entries: of each pair, in the pooled exchange; 0: every bag holds one.
      weighted: whether gains travel, in the pooled exchange.
      item: bytes of a number of a vector.
    """
    ids = pair
    if exchange == POOLED:
        ids = 2 * entries + pair if entries else pair
        ids += (entries or pair) if weighted else 0
    return (shards - 1) * (4 * ids + 2 * item * pair * width)


def copied_bytes(shards: int, rows: int, width: int, item: int = 4) -> int:
    """Return the bytes that a device sends for the sums of the gradients of copies, by `Shards.total`."""
    numbers = rows * (width + 1)
    if item * numbers * shards <= GATHERED:
        return (shards - 1) * item * numbers
    return (shards - 1) * -(-numbers // shards) * (item + 4)


def collectives(step: RowStep, shards: int, columns: int, copied_rows: int | None = None) -> int:
    """Return the collectives of a step of one stack; ``copied_rows``: of a stack of copies."""
    if copied_rows is not None:
        return 1 if 4 * copied_rows * (step.dim + 1) * shards <= GATHERED else 2
    complete = 0 if columns == 1 or is_by_element(step) else 3 + 2 * len(step.slots)
    return 3 + complete  # ids, values, gradients; rows and slots both ways, sums of gradients


def completed_bytes(step: RowStep, shards: int, columns: int, pair: int) -> int:
    """Return the bytes that a device sends for complete rows, by `complete_rows.updated`; 0 where none are needed.

    ``pair``: entries, or rows, of each pair of devices, padding included.
    """
    if columns == 1 or is_by_element(step):
        return 0
    vectors = sum(layout != PER_ROW for _, layout in step.slots)
    numbers = len(step.slots) - vectors
    width, item = step.dim // columns, 2 if step.dtype == "bfloat16" else 4
    row = 4 * numbers + width * (2 * item + 8 * vectors + 4)  # values and slots both ways, gradients one
    return (columns - 1) * shared_rows(shards * pair, columns) * row


def traffic(batch: RoutedBatch, capacity: Mapping[str, int]) -> dict[str, Traffic]:
    """Return the traffic of each stack, for the capacity that the batch is packed with."""
    made = {}
    item = 2 if batch.mesh.shards.dtype == "bfloat16" else 4
    steps = {stack.name: stack.step for stack in batch.mesh.stacks}
    for name, routed in batch.routed.items():
        size, layout, step = routed.size(name, capacity), batch.mesh.layouts[name], steps[name]
        shards, width = layout.shards, step.dim // layout.columns
        if layout.copies:
            sent = copied_bytes(shards, layout.local_rows, width, item)
            vectors = np.full((len(routed.parts), shards), -(-layout.num_rows // shards), np.int32)
            count = collectives(step, shards, 1, layout.local_rows)
            made[name] = Traffic(COPIES, vectors, -(-layout.local_rows // shards), sent, count)
            continue
        entries = 0
        if size[SUMS] and routed.pooled is not None:
            exchange, pair, entries = POOLED, size[SUMS], size[ENTRIES]
            vectors = np.stack([route.sums for route in routed.pooled])
        elif routed.rows is not None:
            exchange, pair = ROWS, size[DISTINCT]
            vectors = np.stack([route.rows for route in routed.rows])
        else:
            raise ValueError(f"no capacity was given for the ids of stack '{name}'")
        weighted = size[WEIGHTED] > 0
        sent = exchanged_bytes(exchange, shards, width, pair, entries, weighted=weighted, item=item)
        sent += completed_bytes(step, shards, layout.columns, entries or pair)
        made[name] = Traffic(exchange, vectors, pair, sent, collectives(step, shards, layout.columns))
    return made
