"""Outputs of models that losses of items compare: `Towers`, of queries and items, and `Positions`, of histories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from sparrow.losses import _checks as checks
from sparrow.losses._checks import Scalar

MEANING: Final = "score: the inner product of query and item"


class Towers(NamedTuple):
    """Vectors of queries and items.

    Attributes:
      query: (batch, dim).
      item: (items, dim); ``item[i]`` is the item that ``query[i]`` chose, further rows are other items.
      negatives: (negatives, dim), items that were drawn; None: the items of the other queries are the negatives.
      positive_ids: (batch,), the ids of the items chosen; None: not known.
      negative_ids: (negatives,), the ids of the items drawn.
      takes_part: (batch, shared + own), not 0 where a query has an item drawn as its negative. The queries share the
        first negatives; behind these, each has as many of its own. Instead of ids.
      users: (batch,), the ids of the users: items that a user chose in the batch are not its negatives; None: not
        known.
      positive_log_q: (batch,), the logarithm of how often each chosen item is expected among the candidates; None: not
        known.
      negative_log_q: (negatives,), the same for the items drawn.
    """

    query: jax.Array
    item: jax.Array
    negatives: jax.Array | None = None
    positive_ids: jax.Array | None = None
    negative_ids: jax.Array | None = None
    takes_part: jax.Array | None = None
    users: jax.Array | None = None
    positive_log_q: jax.Array | None = None
    negative_log_q: jax.Array | None = None

    def own_scores(self) -> jax.Array:
        """Return the inner product of each query with the item that it chose, (batch,)."""
        return jnp.einsum("bd,bd->b", self.query, self.item[: self.query.shape[0]])

    def other_scores(self) -> tuple[jax.Array, jax.Array | None]:
        """Return the inner products with the other candidates, (batch, candidates), and which of them are negatives.

        None: all are. Items that the user of the query chose are excluded.
        """
        if self.negatives is None:
            where = ~jnp.eye(self.query.shape[0], self.item.shape[0], dtype=bool)
            if self.positive_ids is not None:
                where &= not_chosen(self.positive_ids, self.positive_ids, self.users)
            return self.query @ self.item.T, where
        if self.takes_part is not None:
            return _mixed_scores(self.query, self.negatives, self.takes_part.shape[1]), self.takes_part != 0
        scores = self.query @ self.negatives.T
        if self.positive_ids is None or self.negative_ids is None:
            return scores, None
        return scores, not_chosen(self.positive_ids, self.negative_ids, self.users)

    def ranked(self) -> tuple[jax.Array, jax.Array]:
        """Return the scores of all candidates of each query, (batch, candidates), and the column of the chosen one.

        >>> scores, chosen = Towers(jnp.eye(2), jnp.eye(2)).ranked()
        >>> scores.tolist(), chosen.tolist()
        ([[1.0, 0.0], [0.0, 1.0]], [0, 1])
        """
        others, where = self.other_scores()
        if self.negatives is None:
            own = jnp.eye(others.shape[0], others.shape[1], dtype=bool)
            return jnp.where(own | jnp.asarray(where), others, -jnp.inf), jnp.arange(self.query.shape[0])
        if where is not None:
            others = jnp.where(where, others, -jnp.inf)
        return jnp.concatenate([self.own_scores()[:, None], others], axis=1), jnp.zeros(self.query.shape[0], jnp.int32)


def _mixed_scores(query: jax.Array, negatives: jax.Array, columns: int) -> jax.Array:
    """Return the inner products with shared negatives, then with each query's own, (batch, columns).

    >>> query, shared, own = jnp.eye(2), jnp.ones((1, 2)), jnp.array([[5.0, 0.0], [0.0, 7.0]])
    >>> _mixed_scores(query, jnp.concatenate([shared, own]), 2).tolist()
    [[1.0, 5.0], [1.0, 7.0]]
    """
    (batch, dim), count = query.shape, negatives.shape[0]
    own = own_count(count, batch, columns)
    shared = count - batch * own
    highest = jax.lax.Precision.HIGHEST
    parts = [jnp.einsum("id,jd->ij", query, negatives[:shared], precision=highest)]
    if own:
        blocks = negatives[shared:].reshape(batch, own, dim)
        parts.append(jnp.einsum("id,ijd->ij", query, blocks, precision=highest))
    return jnp.concatenate(parts, axis=1)


def users(loss: str, user_ids: ArrayLike | None, batch: int) -> jax.Array | None:
    """Return the ids of the users as an array, checked; None: each row is a user of its own."""
    if user_ids is None:
        return None
    (ids,) = checks.keys(loss, "user_ids", user_ids)
    checks.shape(loss, "user_ids", ids, (batch,), "one per query")
    return ids


def not_chosen(chosen: jax.Array, candidates: jax.Array, users: jax.Array | None = None) -> jax.Array:
    """Return which candidates the user of each row chose in no row of the batch, (batch, candidates).

    Args:
      chosen: (batch,), the id of the item of each row.
      candidates: (candidates,) shared by the rows, or (batch, candidates).
      users: (batch,), the user of each row; None: each row is a user of its own.

    >>> not_chosen(jnp.array([5, 6, 7]), jnp.array([5, 6, 7]), jnp.array([1, 1, 2])).astype(int).tolist()
    [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    """
    if users is None:
        return candidates != chosen[:, None]
    batch = chosen.shape[0]
    both = jnp.concatenate([chosen, candidates.reshape(-1)])
    _, item = jnp.unique(both, return_inverse=True, size=both.shape[0])
    _, user = jnp.unique(users, return_inverse=True, size=batch)
    pairs = jnp.zeros((batch, both.shape[0]), bool).at[user, item[:batch]].set(True)  # by number of user and item
    others = item[batch:].reshape(candidates.shape)
    return ~(pairs[user][:, others] if candidates.ndim == 1 else pairs[user[:, None], others])


def mixed_columns(values: jax.Array, batch: int, columns: int) -> jax.Array:
    """Return values of shared negatives, then of each query's own, as one row per query, (batch, columns).

    >>> mixed_columns(jnp.arange(5), 2, 3).tolist()  # one is shared, then two of each query
    [[0, 1, 2], [0, 3, 4]]
    """
    own = own_count(values.shape[0], batch, columns)
    shared = values.shape[0] - batch * own
    parts = [jnp.broadcast_to(values[:shared], (batch, shared)), values[shared:].reshape(batch, own)]
    return jnp.concatenate(parts, axis=1)


def own_count(count: int, batch: int, columns: int) -> int:
    """Return the number of each query's own negatives, of ``count`` in all and ``columns`` per query."""
    return 0 if batch == 1 else (count - columns) // (batch - 1)  # of one query all are its own, and shared


CELLS: Final = 2**22
"""Scores that are in memory at a time."""


class Positions(NamedTuple):
    """Queries and the items that followed them, one for each element of the histories of a batch.

    Attributes:
      query: (tokens, dim).
      item: (tokens, dim), the item that came next.
      keys: (tokens,) int32, equal where the next items are.
      weights: (tokens,) float32, 0 where there is no element.
      examples: (tokens,) int32, the example of each.
      negatives: (negatives, dim), the items drawn; None: there are none.
      negative_keys: (negatives,) int32, as ``keys``.
      negative_log_q: (negatives,), the logarithm of how often each is expected among the items drawn; None: once.
    """

    query: jax.Array
    item: jax.Array
    keys: jax.Array
    weights: jax.Array
    examples: jax.Array
    negatives: jax.Array | None = None
    negative_keys: jax.Array | None = None
    negative_log_q: jax.Array | None = None

    def own_scores(self) -> jax.Array:
        """Return the inner product of each query with the item that came next, (tokens,)."""
        return jnp.einsum("td,td->t", self.query, self.item)

    def compared(self, f: Callable[..., jax.Array], *, drawn: bool, log_q: bool = True) -> jax.Array:
        """Return ``f(own, others, where, log_q)`` of all queries, (tokens,), a few queries at a time.

        ``own`` are the scores of the next items, (n,), ``others`` those of the candidates, (n, candidates), ``where``
        the candidates that are negatives, ``log_q`` the logarithm of how often each is expected, (candidates,). The
        next item itself is no negative. Scores are computed again for the gradients: no more than `CELLS` are held.

        Args:
          f: the loss.
          drawn: whether the candidates are the items drawn; False: the items of the batch.
          log_q: whether candidates count by how often they are expected; for those of the batch, that is how often
            they occur in it: with the correction, each item of the batch counts once.
        """
        candidates, keys, expected = self._drawn() if drawn else self._of_batch(log_q)
        expected = expected if log_q else jnp.where(jnp.isfinite(expected), 0, expected)
        finite = jnp.isfinite(expected)

        def block(query: jax.Array, item: jax.Array, own_keys: jax.Array) -> jax.Array:
            own = jnp.einsum("td,td->t", query, item)
            others = jnp.einsum("td,nd->tn", query, candidates, precision=jax.lax.Precision.HIGHEST)
            where = (keys != own_keys[:, None]) & finite
            return f(own, others, where, jnp.where(finite, expected, 0))

        return _in_blocks(block, (self.query, self.item, self.keys), candidates.shape[0])

    def _drawn(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        if self.negatives is None or self.negative_keys is None:
            raise ValueError(
                "the loss needs negatives, and none are drawn; add data.negatives, or use in_batch_softmax"
            )
        expected = jnp.zeros(self.negatives.shape[0]) if self.negative_log_q is None else self.negative_log_q
        return self.negatives, self.negative_keys, expected

    def _of_batch(self, log_q: bool) -> tuple[jax.Array, jax.Array, jax.Array]:
        there = self.weights > 0
        expected = jnp.zeros(self.keys.shape)
        if log_q:
            held = jnp.sort(jnp.where(there, self.keys, 2**31 - 1))
            first, last = (jnp.searchsorted(held, self.keys, side=side) for side in ("left", "right"))
            expected = jnp.log(jnp.maximum(last - first, 1).astype(jnp.float32))
        return self.item, self.keys, jnp.where(there, expected, jnp.inf)


def _in_blocks(f: Callable[..., jax.Array], arrays: tuple[jax.Array, ...], width: int) -> jax.Array:
    """Return ``f(*arrays)``, (rows,), where a block of rows has at most `CELLS` scores of ``width`` candidates."""
    rows = arrays[0].shape[0]
    size = max(CELLS // max(width, 1), 1)
    if rows <= size:
        return f(*arrays)
    blocks = -(-rows // size)

    def cut(x: jax.Array) -> jax.Array:
        padded = jnp.pad(x, ((0, blocks * size - rows), *[(0, 0)] * (x.ndim - 1)))
        return padded.reshape(blocks, size, *x.shape[1:])

    again: Any = jax.checkpoint(lambda parts: f(*parts))
    values: jax.Array = jax.lax.map(again, tuple(map(cut, arrays)))
    return values.reshape(-1)[:rows]


def softmax_values(
    own: jax.Array,
    others: jax.Array,
    where: jax.Array,
    log_q: jax.Array,
    *,
    temperature: Scalar,
    label_smoothing: Scalar,
) -> jax.Array:
    """Return the cross entropy of the own item among itself and the negatives, ``(n,)``.

    ::

        value = log(exp(own) + Σ_where exp(others - log_q)) - own

    which estimates the softmax over all items where negatives are drawn. Scores are divided by the temperature.
    """
    own, others = own / temperature, others / temperature - log_q
    largest = jax.lax.stop_gradient(jnp.maximum(own, jnp.where(where, others, -jnp.inf).max(axis=1, initial=-jnp.inf)))
    powers = jnp.exp(jnp.where(where, others - largest[:, None], -jnp.inf)).sum(axis=1)
    total = jnp.log(jnp.exp(own - largest) + powers) + largest
    if isinstance(label_smoothing, jax.Array) or label_smoothing != 0:
        mean = (own + others.sum(axis=1, where=where)) / (1 + where.sum(axis=1))
        own = (1 - label_smoothing) * own + label_smoothing * mean
    return total - own
