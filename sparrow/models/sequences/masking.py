"""Softmax over the elements that are there."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def masked_softmax(scores: jax.Array, mask: jax.Array) -> jax.Array:
    """Return the softmax along the last axis over the places where ``mask`` is True; all zeros where there is none.

    Gradients are finite, with an empty row and with any score behind the mask.

    >>> masked_softmax(jnp.array([[0.0, 0.0, 9.0], [1.0, 2.0, 3.0]]), jnp.array([[True, True, False], [False] * 3]))
    Array([[0.5, 0.5, 0. ],
           [0. , 0. , 0. ]], dtype=float32)
    """
    scores = jnp.where(mask, scores.astype(jnp.float32), -jnp.inf)
    largest = jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))
    powers = jnp.where(mask, jnp.exp(jnp.where(mask, scores - jnp.where(jnp.isfinite(largest), largest, 0), 0)), 0)
    total = powers.sum(axis=-1, keepdims=True)
    return powers / jnp.where(total > 0, total, 1)
