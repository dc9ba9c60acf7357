"""The pooled exchange: entries go to the owners of their rows, which sum their rows of each bag.

One sum per bag and owner comes back. Gradients take the same way: each owner gets the gradients of its bags, not yet
summed by row and in the batch's order, so that its update has the bits of one device.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.embedding.sharding.exchange import Sent, looked_up
from sparrow.embedding.sharding.layout import Layout
from sparrow.embedding.sharding.parts import Part
from sparrow.embedding.sharding.routing import PooledArrays, PooledRoute, fill_pooled
from sparrow.embedding.sharding.shards import Shards
from sparrow.kernels import Backend, EntryGradients, Lookups


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Pooled(Sent):
    """The lookups of one stack, each array split over the shards; shapes in `PooledArrays` are per shard.

    Attributes:
      entries, sums: room for each pair of shards.
      weighted: whether gains are sent.
      num_bags: bags of each shard.
      exchanged: whether ``block`` has gone to the owners: it then holds what each shard sent here.
      order: as in `Lookups`, of the entries at the owner.
    """

    block: jax.Array
    bag_of: jax.Array
    offsets: jax.Array | None
    slots: jax.Array
    slot_bags: jax.Array | None
    entries: int = dataclasses.field(metadata={"static": True})
    sums: int = dataclasses.field(metadata={"static": True})
    weighted: bool = dataclasses.field(metadata={"static": True})
    num_bags: int = dataclasses.field(metadata={"static": True})
    exchanged: bool = dataclasses.field(metadata={"static": True}, default=False)
    order: jax.Array | None = None

    @property
    def wanted(self) -> Any:
        """(senders, entries): the local row of each entry."""
        return self.block[:, : self.entries]

    def with_wanted(self, rows: Any) -> Pooled:
        """Return the same with other local rows."""
        if isinstance(self.block, np.ndarray):
            block = self.block.copy()
            block[:, : self.entries] = rows
            return dataclasses.replace(self, block=block)
        return dataclasses.replace(self, block=self.block.at[:, : self.entries].set(rows))

    @property
    def vector_of(self) -> tuple[jax.Array | None, int]:
        """The sum of each entry."""
        return None if self.offsets is None else self.block[:, self.entries : 2 * self.entries], self.sums

    def exchange(self, shards: Shards) -> Pooled:
        """On a shard: the entries that the others have for it. Needs no table."""
        return dataclasses.replace(self, block=shards.swap(self.block), exchanged=True)

    def owned(self, backend: Backend, table: jax.Array, sort: bool) -> tuple[jax.Array, Pooled]:
        """Return the sums of each shard's bags over the rows here."""
        rows, bags, gains = self._entries()
        offsets, count = None, len(self.block) * self.sums
        if bags is not None:
            starts = self.block[:, 2 * self.entries : 2 * self.entries + self.sums]
            ends = jnp.array([len(self.block) * self.entries], jnp.int32)
            offsets = jnp.concatenate([self._shifted(starts, self.entries), ends])
        sums, lookups = looked_up(backend, table, Lookups(rows, bags, offsets, gains, count), sort)
        return sums.reshape(len(self.block), self.sums, -1), dataclasses.replace(self, order=lookups.order)

    def pooled(self, backend: Backend, vectors: jax.Array, dtype: Any) -> jax.Array:
        """Return the sum over all owners of each bag."""
        return backend.lookup(vectors, Lookups(self.slots, self.slot_bags, self.offsets, None, self.num_bags), dtype)

    def row_grads(self, shards: Shards, backend: Backend, grads: jax.Array, rows: int) -> EntryGradients:
        """Return the gradients of all bags that this shard has rows of, not yet summed."""
        own, bags, gains = self._entries()
        wanted = self.bag_of.reshape(-1)
        sent = backend.lookup(grads, Lookups(wanted, None, None, None, len(wanted)))
        there = shards.send(sent.reshape(len(self.block), self.sums, -1))
        return EntryGradients(own, bags, gains, there.reshape(len(wanted), -1), self.order)

    def _entries(self) -> tuple[jax.Array, jax.Array | None, jax.Array | None]:
        """Local rows, sums (None: each entry is one) and gains of all entries that this shard owns."""
        rows = self.block[:, : self.entries].reshape(-1)
        sums = gains = None
        if self.offsets is not None:
            sums = self._shifted(self.block[:, self.entries : 2 * self.entries], self.sums)
        if self.weighted:
            bits = self.block[:, -self.entries :].reshape(-1)
            gains = jax.lax.bitcast_convert_type(bits, jnp.float32)
        return rows, sums, gains

    def _shifted(self, numbers: jax.Array, stride: int) -> jax.Array:
        """Numbers that count from 0 for each sender, in one row for all of them."""
        senders = jnp.arange(len(self.block), dtype=jnp.int32)[:, None]
        return (numbers + senders * stride).reshape(-1)


def lay_out(
    layout: Layout, parts: Sequence[Part], routes: Sequence[PooledRoute], entries: int, sums: int, weighted: bool
) -> Pooled:
    """Return the arrays of this process's shards, on the host. ``entries`` 0: every bag holds one entry."""
    shards, count, num_bags = layout.shards, len(parts), parts[0].num_bags
    ragged = entries > 0
    if not ragged:
        entries = sums
    width = entries + (entries + sums if ragged else 0) + (entries if weighted else 0)
    slots = shards * sums if ragged else num_bags
    made: Any = PooledArrays(
        block=np.empty((count, shards, width), np.int32),
        bag_of=np.empty((count, shards, sums), np.int32),
        offsets=np.empty((count, num_bags + 1), np.int32) if ragged else None,
        slots=np.empty((count, slots), np.int32),
        slot_bags=np.empty((count, slots), np.int32) if ragged else None,
    )
    for i, (part, route) in enumerate(zip(parts, routes, strict=True)):
        own = jax.tree.map(operator.itemgetter(i), made)
        fill_pooled(layout, part, route, entries, sums, weighted, own)
    flat = jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), made)
    return Pooled(**flat._asdict(), entries=entries, sums=sums, weighted=weighted, num_bags=num_bags)
