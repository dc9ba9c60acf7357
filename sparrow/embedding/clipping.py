"""The clip of gradients by their global norm: one factor for row gradients and dense gradients together."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def clip_factor(norm: jax.Array, limit: jax.typing.ArrayLike) -> jax.Array:
    """Return ``min(1, limit / norm)``; a NaN stays NaN, so that it reaches the gradients.

    >>> clip_factor(jnp.array([0.5, 4.0]), 1.0).tolist()
    [1.0, 0.25]
    """
    return jnp.where(norm < limit, 1.0, limit / norm)
