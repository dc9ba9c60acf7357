"""`Exchange`: the lookups of one stack on a mesh, and the way of its vectors between owners and examples."""

from __future__ import annotations

import abc
from typing import Any, Self

import jax

from sparrow.embedding.sharding.shards import Shards
from sparrow.kernels import Backend, EntryGradients, Lookups


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
    def pooled(self, backend: Backend, vectors: jax.Array, dtype: Any) -> jax.Array:
        """(num_bags, dim): the bags of a shard, from the vectors that the owners sent, (shards * vectors, dim)."""

    @abc.abstractmethod
    def row_grads(self, shards: Shards, backend: Backend, grads: jax.Array, rows: int) -> EntryGradients:
        """Return the gradients of a shard's rows, from the gradients of its own bags, after `exchange`.

        ``rows``: of the shard.
        """

    def fetched(self, shards: Shards, backend: Backend, table: jax.Array, sort: bool) -> tuple[jax.Array, Self]:
        """On a shard, after `exchange`: the vectors that the owners sent; and this, with its order."""
        vectors, kept = self.owned(backend, table, sort)
        return shards.send(vectors).reshape(-1, vectors.shape[-1]), kept


def looked_up(backend: Backend, table: jax.Array, lookups: Lookups, sort: bool) -> tuple[jax.Array, Lookups]:
    """Return the pooled rows, and the lookups, with the order of their entries where ``sort`` asks for it."""
    return backend.lookup_and_sort(table, lookups) if sort else (backend.lookup(table, lookups), lookups)
