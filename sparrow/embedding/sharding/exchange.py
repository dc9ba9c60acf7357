"""`Exchange`: the lookups of one stack on a mesh, and the way of its vectors between owners and examples."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, Final, Self

import jax
import jax.numpy as jnp

from sparrow.embedding.sharding.shards import Shards
from sparrow.kernels import Backend, EntryGradients, Lookups

SHARES: Final = (8, 4, 2, 1)
"""`Sent.patched` has room for 1/8, 1/4, 1/2 or all of the vectors of a pair of devices, whatever is enough."""
MARKS: Final = 16
"""Marks for each touched row: at most one row in MARKS is taken for a touched one by mistake, and sent again."""


class Exchange(abc.ABC):
    """A lookup is ids to their owners, vectors at the owners, vectors to the examples, sums of bags.

    Attributes:
      exchanged: whether the ids are at the owners of their rows.
    """

    exchanged: bool

    @abc.abstractmethod
    def exchange(self, shards: Shards) -> Self:
        """On a shard: the ids that the others have for it. Needs no table."""

    @abc.abstractmethod
    def owned(self, backend: Backend, table: jax.Array, sort: bool) -> tuple[jax.Array, Self]:
        """On a shard, after `exchange`: (shards, vectors, dim), the vectors of each shard; and this, with its order."""

    @abc.abstractmethod
    def fetched(self, shards: Shards, backend: Backend, table: jax.Array, sort: bool) -> tuple[jax.Array, Self]:
        """On a shard, after `exchange`: the vectors that the owners sent; and this, with its order."""

    def patched(self, shards: Shards, backend: Backend, table: jax.Array, vectors: Any, touched: jax.Array) -> Any:
        """On a shard: the vectors of `fetched` before an update of rows ``touched``, as they are after it."""
        return self.fetched(shards, backend, table, sort=False)[0]  # from home

    @abc.abstractmethod
    def pooled(self, backend: Backend, vectors: jax.Array, dtype: Any) -> jax.Array:
        """(num_bags, dim): the bags of a shard, from the vectors that the owners sent, (shards * vectors, dim)."""

    @abc.abstractmethod
    def row_grads(self, shards: Shards, backend: Backend, grads: jax.Array, rows: int) -> EntryGradients:
        """Return the gradients of a shard's rows, from the gradients of its own bags, after `exchange`.

        ``rows``: of the shard.
        """


class Sent(Exchange):
    """An exchange whose vectors travel from the owners of their rows."""

    @property
    @abc.abstractmethod
    def wanted(self) -> Any:
        """(senders, entries): the local row of each entry."""

    @abc.abstractmethod
    def with_wanted(self, rows: Any) -> Self:
        """Return the same with other local rows."""

    @property
    @abc.abstractmethod
    def vector_of(self) -> tuple[jax.Array | None, int]:
        """(senders, entries): the vector of each entry, None: its own; and the number of vectors of a sender."""

    def fetched(self, shards: Shards, backend: Backend, table: jax.Array, sort: bool) -> tuple[jax.Array, Self]:
        """On a shard, after `exchange`: the vectors that the owners sent; and this, with its order."""
        vectors, kept = self.owned(backend, table, sort)
        return shards.send(vectors).reshape(-1, vectors.shape[-1]), kept

    def patched(self, shards: Shards, backend: Backend, table: jax.Array, vectors: Any, touched: jax.Array) -> Any:
        """Return the vectors after an update: those with a touched row travel again.

        Their numbers travel first, which need no table and no gradient: XLA may send them beside the step.
        """
        wanted, (at, count), rows = self.wanted, self.vector_of, len(table)
        senders = jnp.arange(len(wanted), dtype=jnp.int32)[:, None]
        changed = again = _among(touched, wanted, rows)  # of entries
        if at is not None:
            changed = jnp.zeros((len(wanted), count), bool).at[senders, at].max(again, mode="drop")
            again = changed.at[senders, at].get(mode="fill", fill_value=False)
        before = jnp.cumsum(changed, axis=1, dtype=jnp.int32)
        numbers = jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32), changed.shape)
        sent = jnp.full(changed.shape, count, jnp.int32)
        sent = sent.at[senders, jnp.where(changed, before - 1, count)].set(numbers, mode="drop")
        got = shards.swap(sent)
        most: jax.Array = jax.lax.pmax(before[:, -1:].max(initial=0), shards.axes)  # type: ignore[no-untyped-call]
        owned, _ = self.with_wanted(jnp.where(again, wanted, rows)).owned(backend, table, sort=False)

        def sending(room: int) -> Callable[[jax.Array, jax.Array], jax.Array]:
            def send(owned: jax.Array, vectors: jax.Array) -> jax.Array:
                few = jnp.take_along_axis(owned, sent[:, :room, None], axis=1, mode="clip")
                at = jnp.where(got[:, :room] < count, got[:, :room] + senders * count, len(vectors))
                new = shards.send(few).reshape(-1, vectors.shape[-1])
                return vectors.at[at.reshape(-1)].set(new, mode="drop")

            return send

        rooms = [-(-count // share) for share in SHARES]
        choice = jnp.sum(most > jnp.array(rooms[:-1]))
        return jax.lax.switch(choice, [sending(room) for room in rooms], owned, vectors)


def _among(touched: jax.Array, rows: jax.Array, num_rows: int) -> jax.Array:
    """Return whether each of ``rows`` is one of those touched; some that are not are taken for one."""
    size = min(1 << (MARKS * len(touched)).bit_length(), num_rows)

    def mark(row: jax.Array) -> jax.Array:
        spread = row.astype(jnp.uint32) * jnp.uint32(0x9E3779B1) >> 7
        return row if size == num_rows else (spread % size).astype(jnp.int32)

    at = jnp.where(_is_there(touched, num_rows), mark(touched), size)
    marks = jnp.zeros(size, bool).at[at].set(True, mode="drop")
    return _is_there(rows, num_rows) & marks.at[mark(rows)].get(mode="fill", fill_value=False)


def _is_there(rows: jax.Array, num_rows: int) -> jax.Array:
    return rows.astype(jnp.uint32) < num_rows


def looked_up(backend: Backend, table: jax.Array, lookups: Lookups, sort: bool) -> tuple[jax.Array, Lookups]:
    """Return the pooled rows, and the lookups, with the order of their entries where ``sort`` asks for it."""
    return backend.lookup_and_sort(table, lookups) if sort else (backend.lookup(table, lookups), lookups)
