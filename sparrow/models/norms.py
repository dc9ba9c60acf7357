"""Normalisation that leaves a model in its compute dtype."""

from __future__ import annotations

import jax
from flax import nnx


class LayerNorm(nnx.LayerNorm):
    """Layer normalisation over the last axis; statistics are float32, the output has the dtype of the input.

    ::

        y = (x - mean(x)) / √(var(x) + 1e-5) * scale + bias

    >>> import jax.numpy as jnp
    >>> LayerNorm(3, rngs=nnx.Rngs(0))(jnp.ones((2, 3), jnp.bfloat16)).dtype
    dtype(bfloat16)
    """

    def __init__(self, dim: int, *, rngs: nnx.Rngs) -> None:
        super().__init__(dim, epsilon=1e-5, rngs=rngs)

    def __call__(self, x: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        """Return the same shape and dtype as ``x``."""
        y: jax.Array = super().__call__(x, mask=mask)
        return y.astype(x.dtype)
