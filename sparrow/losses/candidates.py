"""The candidates of each query that are its negatives, from the ids of users and items of a batch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from sparrow.losses import _checks as checks


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
