"""Copies on every device: a lookup stays at home, and one gradient per row is summed over the devices, in their order.

All devices apply the same sums to the same rows, so that copies stay equal. A sum of the devices' sums rounds
differently from one device's. What travels has the size of the table, whatever the batch: for small tables.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.embedding.sharding.exchange import Exchange, looked_up
from sparrow.embedding.sharding.layout import Layout
from sparrow.embedding.sharding.parts import Part, bags_of
from sparrow.embedding.sharding.shards import Shards
from sparrow.kernels import Backend, EntryGradients, Lookups, sum_by_row


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Copied(Exchange):
    """The lookups of one stack, each array split over the shards.

    Attributes:
      ids, bags, offsets, gains: as in `Lookups`.
      num_bags: bags of each shard.
    """

    ids: jax.Array
    bags: jax.Array | None
    offsets: jax.Array | None
    gains: jax.Array | None
    num_bags: int = dataclasses.field(metadata={"static": True})
    exchanged: bool = dataclasses.field(metadata={"static": True}, default=True)

    def exchange(self, shards: Shards) -> Copied:
        """Return this: every shard has all rows."""
        return self

    def owned(self, backend: Backend, table: jax.Array, sort: bool) -> tuple[jax.Array, Copied]:
        """Return the bags of this shard."""
        lookups = Lookups(self.ids, self.bags, self.offsets, self.gains, self.num_bags)
        return looked_up(backend, table, lookups, sort=False)[0][None], self

    def fetched(self, shards: Shards, backend: Backend, table: jax.Array, sort: bool) -> tuple[jax.Array, Copied]:
        """Return the bags of this shard, which need not travel."""
        vectors, kept = self.owned(backend, table, sort)
        return vectors[0], kept

    def pooled(self, backend: Backend, vectors: jax.Array, dtype: Any) -> jax.Array:
        """Return the bags."""
        return vectors.astype(dtype)

    def row_grads(self, shards: Shards, backend: Backend, grads: jax.Array, rows: int) -> EntryGradients:
        """Return the gradient of every row that any shard looked up, summed over the shards."""
        own, sums = sum_by_row(EntryGradients(self.ids, self.bags, self.gains, grads), rows)
        touched = jnp.ones((len(own), 1), jnp.float32)
        numbers = jnp.zeros((rows, sums.shape[1] + 1), jnp.float32)
        numbers = numbers.at[own].set(jnp.concatenate([sums, touched], axis=1), mode="drop")
        total = shards.total(numbers.astype(shards.dtype).reshape(-1)).reshape(numbers.shape)
        ids = jnp.where(total[:, -1] > 0, jnp.arange(rows, dtype=jnp.int32), rows)
        return EntryGradients(ids, None, None, total[:, :-1])


def lay_out(layout: Layout, parts: Sequence[Part], entries: int, weighted: bool) -> Copied:
    """Return the arrays of this process's shards, on the host. ``entries`` 0: every bag holds one entry."""
    num_bags = parts[0].num_bags
    size = entries or num_bags
    ids = np.full((len(parts), size), layout.local_rows, np.int32)
    for i, part in enumerate(parts):
        ids[i, : len(part.ids)] = np.where(part.ids.view(np.uint32) < layout.num_rows, part.ids, layout.local_rows)
    held: Any = {"ids": ids, **bags_of(parts, size, entries > 0, weighted)}
    return Copied(**jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), held), num_bags=num_bags)
