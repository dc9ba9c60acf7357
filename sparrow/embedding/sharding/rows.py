"""The rows exchange: each shard asks for every distinct row once, pools at home, and sends back one gradient per row.

Gradients are summed by row before they travel, by the transposed lookup that `sharding.routing` lays out: no device
sorts. The sum of a row is the sum of the shards' sums, which rounds differently from one device's.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from sparrow.embedding.sharding.exchange import Sent, looked_up
from sparrow.embedding.sharding.layout import Layout
from sparrow.embedding.sharding.parts import Part, bags_of
from sparrow.embedding.sharding.routing import RowsArrays, RowsRoute, fill_rows
from sparrow.embedding.sharding.shards import Shards
from sparrow.kernels import Backend, EntryGradients, Lookups


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rows(Sent):
    """The lookups of one stack, each array split over the shards; shapes in `RowsArrays` are per shard.

    Attributes:
      bags, offsets, gains: as in `Lookups`, with the slots as ids.
      num_bags: bags of each shard.
      exchanged: whether ``send`` has gone to the owners: it then holds the rows that each shard requests from this one.
      order: as in `Lookups`, of the rows that are wanted.
    """

    send: jax.Array
    slots: jax.Array
    back_offsets: jax.Array
    back_slots: jax.Array
    back_bags: jax.Array
    back_gains: jax.Array | None
    bags: jax.Array | None
    offsets: jax.Array | None
    gains: jax.Array | None
    num_bags: int = dataclasses.field(metadata={"static": True})
    exchanged: bool = dataclasses.field(metadata={"static": True}, default=False)
    order: jax.Array | None = None

    @property
    def wanted(self) -> Any:
        """(senders, rows): the local rows that are requested."""
        return self.send

    def with_wanted(self, rows: Any) -> Rows:
        """Return the same with other local rows."""
        return dataclasses.replace(self, send=rows)

    @property
    def vector_of(self) -> tuple[jax.Array | None, int]:
        """Each row travels by itself."""
        return None, self.send.shape[1]

    def exchange(self, shards: Shards) -> Rows:
        """Return the rows that the other shards request from this one. Needs no table."""
        return dataclasses.replace(self, send=shards.swap(self.send), exchanged=True)

    def owned(self, backend: Backend, table: jax.Array, sort: bool) -> tuple[jax.Array, Rows]:
        """Return the rows that each shard wants."""
        wanted = self.send.reshape(-1)
        rows, lookups = looked_up(backend, table, Lookups(wanted, None, None, None, len(wanted)), sort)
        return rows.reshape(*self.send.shape, -1), dataclasses.replace(self, order=lookups.order)

    def pooled(self, backend: Backend, vectors: jax.Array, dtype: Any) -> jax.Array:
        """Return the bags of the rows that arrived."""
        return backend.lookup(vectors, Lookups(self.slots, self.bags, self.offsets, self.gains, self.num_bags), dtype)

    def row_grads(self, shards: Shards, backend: Backend, grads: jax.Array, rows: int) -> EntryGradients:
        """Return one gradient of each row and shard."""
        wanted = self.send.reshape(-1)
        back = Lookups(self.back_bags, self.back_slots, self.back_offsets, self.back_gains, len(wanted))
        sums = backend.lookup(grads, back)
        there = shards.send(sums.reshape(*self.send.shape, -1))
        return EntryGradients(wanted, None, None, there.reshape(len(wanted), -1), self.order)


def lay_out(
    layout: Layout, parts: Sequence[Part], routes: Sequence[RowsRoute], entries: int, rows: int, weighted: bool
) -> Rows:
    """Return the arrays of this process's shards, on the host. ``entries`` 0: every bag holds one entry."""
    shards, count, num_bags = layout.shards, len(parts), parts[0].num_bags
    ragged = entries > 0
    size = entries if ragged else num_bags

    def integers(*shape: int) -> Any:
        return np.empty((count, *shape), np.int32)

    made: Any = RowsArrays(
        send=integers(shards, rows),
        slots=integers(size),
        back_offsets=integers(shards * rows + 1),
        back_slots=integers(size),
        back_bags=integers(size),
        back_gains=np.empty((count, size), np.float32) if weighted else None,
    )
    for i, (part, route) in enumerate(zip(parts, routes, strict=True)):
        fill_rows(layout, part, route, rows, jax.tree.map(operator.itemgetter(i), made))
    held: Any = {**made._asdict(), **bags_of(parts, size, ragged, weighted)}
    return Rows(**jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), held), num_bags=num_bags)
