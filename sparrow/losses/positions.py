"""`Positions`: the state of a history after each of its elements, and the item that came next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp

from sparrow.losses._checks import Scalar

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
