"""Attention without a softmax: each pair has a weight of its own."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def pointwise_attention(
    q: jax.Array, k: jax.Array, v: jax.Array, bias: jax.Array | None, mask: jax.Array, scale: float
) -> jax.Array:
    """Return ``Σ_j silu(<q_i, k_j> + bias_ij) scale v_j`` over the j of the mask, ``(batch, length, heads, dim)``.

    Args:
      q: ``(batch, length, heads, attention_dim)``.
      k: the same shape.
      v: ``(batch, length, heads, dim)``.
      bias: ``(batch or 1, length, length)``; None for none.
      mask: ``(batch or 1, length, length)``.
      scale: the factor of all weights.
    """
    scores = jnp.einsum("bihd,bjhd->bhij", q, k)
    if bias is not None:
        scores = scores + bias[:, None].astype(scores.dtype)
    weights = jnp.where(mask[:, None], jax.nn.silu(scores) * scale, 0)
    return jnp.einsum("bhij,bjhd->bihd", weights, v)
