"""The lookups of one stack on a mesh, and the way of its vectors between owners and examples.

A lookup is ids to the owners of their rows, vectors at the owners, vectors to the examples, sums of bags. `Sent` does
it by either of two exchanges:

* pooled: entries go to the owners, which sum their rows of each bag; one sum per bag and owner comes back. Gradients
  take the same way: each owner gets the gradients of its bags, not yet summed by row and in the batch's order, so that
  its update has the bits of one device.
* rows: each shard asks for every distinct row once, pools at home, and sends back one gradient per row, summed by a
  transposed lookup: no device sorts. The sum of a row is the sum of the shards' sums, which rounds differently from
  one device's.

`Copied`: every shard has all rows. A lookup stays at home, and one gradient per row is summed over the devices, in
their order: all apply the same sums to the same rows, so that copies stay equal. A sum of the devices' sums rounds
differently from one device's. What travels has the size of the table, whatever the batch: for small tables.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.embedding.sharding.shards import Shards
from sparrow.kernels import Backend, EntryGradients, Lookups, sum_by_row

SHARES: Final = (8, 4, 2, 1)
"""`Sent.patched` has buffers for 1/8, 1/4, 1/2 or all of the vectors of a pair of devices, and takes the smallest."""
MARKS: Final = 16
"""Marks for each touched row: at most one row in MARKS is taken for a touched one by mistake, and sent again."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sent:
    """Vectors travel from the owners of their rows; methods run on a shard, inside of `Shards.each`.

    Arrays are split over the shards; shapes here are per shard.

    Attributes:
      block: (shards, width) sent to each owner, after `exchange` what each shard sent here: local rows (entries); where
        a vector is a sum of entries, the vector of each entry (entries) and the first entry of each vector (vectors);
        where there are gains, their bits (entries).
      home: the bags, whose ids are places among the (shards * vectors) vectors that arrive.
      back: the gradients of these vectors, whose ids are bags.
      entries, vectors: capacity for each pair of shards.
      summed: whether a vector is a sum of entries; otherwise entry i is vector i.
      weighted: whether gains are sent.
      exchanged: whether ``block`` has gone to the owners.
      order: as in `Lookups`, of the entries at the owner.
    """

    block: jax.Array
    home: Lookups
    back: Lookups
    entries: int = dataclasses.field(metadata={"static": True})
    vectors: int = dataclasses.field(metadata={"static": True})
    summed: bool = dataclasses.field(metadata={"static": True}, default=False)
    weighted: bool = dataclasses.field(metadata={"static": True}, default=False)
    exchanged: bool = dataclasses.field(metadata={"static": True}, default=False)
    order: jax.Array | None = None

    @property
    def wanted(self) -> Any:
        """(senders, entries): the local row of each entry."""
        return self.block[:, : self.entries]

    def with_wanted(self, rows: Any) -> Sent:
        """Return the same with other local rows."""
        xp = np if isinstance(self.block, np.ndarray) else jnp
        return dataclasses.replace(self, block=xp.concatenate([rows, self.block[:, self.entries :]], axis=1))

    def exchange(self, shards: Shards) -> Sent:
        """Return these with the ids that the other shards have for this one. Needs no table."""
        return dataclasses.replace(self, block=shards.swap(self.block), exchanged=True)

    def fetched(self, shards: Shards, backend: Backend, table: jax.Array, sort: bool) -> tuple[jax.Array, Sent]:
        """Return, after `exchange`, the vectors that the owners sent; and these, with their order."""
        owned, order = self._owned(backend, table, sort)
        return shards.send(owned).reshape(-1, owned.shape[-1]), dataclasses.replace(self, order=order)

    def patched(self, shards: Shards, backend: Backend, table: jax.Array, vectors: Any, touched: jax.Array) -> Any:
        """Return the vectors of `fetched` as they are after an update of rows ``touched``: some travel again.

        Their numbers travel first, which need no table and no gradient: XLA may send them beside the step.
        """
        wanted, count, rows = self.wanted, self.vectors, len(table)
        senders = jnp.arange(len(wanted), dtype=jnp.int32)[:, None]
        changed = again = _among(touched, wanted, rows)  # of entries
        if self.summed:
            at = self._vector_of
            changed = jnp.zeros((len(wanted), count), bool).at[senders, at].max(again, mode="drop")
            again = changed.at[senders, at].get(mode="fill", fill_value=False)
        before = jnp.cumsum(changed, axis=1, dtype=jnp.int32)
        numbers = jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32), changed.shape)
        sent = jnp.full(changed.shape, count, jnp.int32)
        sent = sent.at[senders, jnp.where(changed, before - 1, count)].set(numbers, mode="drop")
        got = shards.swap(sent)
        most: jax.Array = jax.lax.pmax(before[:, -1:].max(initial=0), shards.axes)  # type: ignore[no-untyped-call]
        owned, _ = self.with_wanted(jnp.where(again, wanted, rows))._owned(backend, table, sort=False)

        def sending(size: int) -> Callable[[jax.Array, jax.Array], jax.Array]:
            def send(owned: jax.Array, vectors: jax.Array) -> jax.Array:
                few = jnp.take_along_axis(owned, sent[:, :size, None], axis=1, mode="clip")
                at = jnp.where(got[:, :size] < count, got[:, :size] + senders * count, len(vectors))
                new = shards.send(few).reshape(-1, vectors.shape[-1])
                return vectors.at[at.reshape(-1)].set(new, mode="drop")

            return send

        sizes = [-(-count // share) for share in SHARES]
        choice = jnp.sum(most > jnp.array(sizes[:-1]))
        return jax.lax.switch(choice, [sending(size) for size in sizes], owned, vectors)

    def pooled(self, backend: Backend, vectors: jax.Array, dtype: Any) -> jax.Array:
        """(num_bags, dim): the bags of a shard, from the vectors of `fetched`."""
        return backend.lookup(vectors, self.home, dtype)

    def row_grads(self, shards: Shards, backend: Backend, grads: jax.Array, rows: int) -> EntryGradients:
        """Return, after `exchange`, the gradients of a shard's ``rows`` rows, from all shards' gradients of bags."""
        sent, own = backend.lookup(grads, self.back), self._at_owner()
        there = shards.send(sent.reshape(len(self.block), self.vectors, -1)).reshape(sent.shape)
        return EntryGradients(own.ids, own.bags, own.gains, there, self.order)

    def _owned(self, backend: Backend, table: jax.Array, sort: bool) -> tuple[jax.Array, jax.Array | None]:
        """(shards, vectors, dim), the vectors of each shard; and the order of their entries where ``sort`` asks."""
        lookups = self._at_owner()
        if sort:
            rows, lookups = backend.lookup_and_sort(table, lookups)
        else:
            rows = backend.lookup(table, lookups)
        return rows.reshape(len(self.block), self.vectors, -1), lookups.order

    @property
    def _vector_of(self) -> jax.Array:
        """(senders, entries): the vector of each entry."""
        return self.block[:, self.entries : 2 * self.entries]

    def _at_owner(self) -> Lookups:
        """Return the local rows of all entries that this shard owns, with the vectors of all shards as bags."""
        senders = jnp.arange(len(self.block), dtype=jnp.int32)[:, None]
        bags = offsets = gains = None
        if self.summed:  # numbers that count from 0 for each sender become numbers of all senders
            bags = (self._vector_of + senders * self.vectors).reshape(-1)
            starts = self.block[:, 2 * self.entries : 2 * self.entries + self.vectors] + senders * self.entries
            ends = jnp.array([len(self.block) * self.entries], jnp.int32)
            offsets = jnp.concatenate([starts.reshape(-1), ends])
        if self.weighted:
            gains = jax.lax.bitcast_convert_type(self.block[:, -self.entries :].reshape(-1), jnp.float32)
        return Lookups(self.wanted.reshape(-1), bags, offsets, gains, len(self.block) * self.vectors)


def _among(touched: jax.Array, rows: jax.Array, num_rows: int) -> jax.Array:
    """Return whether each of ``rows`` is a touched one; some that are not are taken for one."""
    size = min(1 << (MARKS * len(touched)).bit_length(), num_rows)

    def mark(row: jax.Array) -> jax.Array:
        spread = row.astype(jnp.uint32) * jnp.uint32(0x9E3779B1) >> 7
        return row if size == num_rows else (spread % size).astype(jnp.int32)

    def is_there(row: jax.Array) -> jax.Array:
        return row.astype(jnp.uint32) < num_rows

    at = jnp.where(is_there(touched), mark(touched), size)
    marks = jnp.zeros(size, bool).at[at].set(True, mode="drop")
    return is_there(rows) & marks.at[mark(rows)].get(mode="fill", fill_value=False)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Copied:
    """Every shard has all rows; ``home`` are the lookups of its bags. Methods are those of `Sent`."""

    home: Lookups
    exchanged: bool = dataclasses.field(metadata={"static": True}, default=True)

    def exchange(self, shards: Shards) -> Copied:
        return self

    def fetched(self, shards: Shards, backend: Backend, table: jax.Array, sort: bool) -> tuple[jax.Array, Copied]:
        """Return the bags of this shard, which need not travel."""
        return backend.lookup(table, self.home), self

    def patched(self, shards: Shards, backend: Backend, table: jax.Array, vectors: Any, touched: jax.Array) -> Any:
        return backend.lookup(table, self.home)

    def pooled(self, backend: Backend, vectors: jax.Array, dtype: Any) -> jax.Array:
        return vectors.astype(dtype)

    def row_grads(self, shards: Shards, backend: Backend, grads: jax.Array, rows: int) -> EntryGradients:
        """Return the gradient of every row that any shard looked up, summed over the shards."""
        own, sums = sum_by_row(EntryGradients(self.home.ids, self.home.bags, self.home.gains, grads), rows)
        touched = jnp.ones((len(own), 1), jnp.float32)
        numbers = jnp.zeros((rows, sums.shape[1] + 1), jnp.float32)
        numbers = numbers.at[own].set(jnp.concatenate([sums, touched], axis=1), mode="drop")
        total = shards.total(numbers.astype(shards.dtype).reshape(-1)).reshape(numbers.shape)
        ids = jnp.where(total[:, -1] > 0, jnp.arange(rows, dtype=jnp.int32), rows)
        return EntryGradients(ids, None, None, total[:, :-1])


Exchange: TypeAlias = Sent | Copied
"""The lookups of one stack."""
