"""Normalization of vectors, and of units in the compute dtype of a model."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.kernels import layer_norm


class LayerNorm(nnx.LayerNorm):
    """Layer normalization over the last axis; statistics are float32, the output has the dtype of the input.

    ::

        y = (x - mean(x)) / √(var(x) + epsilon) * scale + bias

    >>> LayerNorm(3, rngs=nnx.Rngs(0))(jnp.ones((2, 3), jnp.bfloat16)).dtype
    dtype(bfloat16)
    """

    def __init__(self, dim: int, *, epsilon: float = 1e-5, rngs: nnx.Rngs) -> None:
        super().__init__(dim, epsilon=epsilon, rngs=rngs)

    scale: nnx.Param[jax.Array]
    bias: nnx.Param[jax.Array]

    def __call__(self, x: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        y: jax.Array = layer_norm(self.epsilon, False, x, self.scale[...], self.bias[...])
        return y

    def of_sum(self, x: jax.Array, added: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """Return ``x + added`` and its norm, in one pass forward and one backward; None: nothing is added."""
        both: tuple[jax.Array, jax.Array] = layer_norm(self.epsilon, True, x, self.scale[...], self.bias[...], added)
        return both


class HeadNorm(nnx.Module):
    """Normalization of each head by itself, with one scale and one bias per head.

    ::

        y_h = (x_h - mean(x_h)) / √(var(x_h) + epsilon) * scale_h + bias_h

    >>> HeadNorm(2)(jnp.array([[1.0, 3.0, 5.0, 9.0]])).round(3).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """

    def __init__(self, heads: int, *, epsilon: float = 1e-5) -> None:
        self.heads, self.epsilon = heads, epsilon
        self.scale, self.bias = nnx.Param(jnp.ones(heads)), nnx.Param(jnp.zeros(heads))

    scale: nnx.Param[jax.Array]
    bias: nnx.Param[jax.Array]

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the same shape, ``(..., heads * dim)``, and dtype as ``x``."""
        by_head = x.astype(jnp.float32).reshape(*x.shape[:-1], self.heads, -1)
        centered = by_head - by_head.mean(axis=-1, keepdims=True)
        variance = jnp.square(centered).mean(axis=-1, keepdims=True)
        y = centered * jax.lax.rsqrt(variance + self.epsilon)
        y = y * self.scale[...][:, None] + self.bias[...][:, None]
        return y.reshape(x.shape).astype(x.dtype)


def unit(x: jax.Array) -> jax.Array:
    """Return ``x / |x|`` along the last axis; zeros stay, and have gradient 0 instead of NaN.

    >>> unit(jnp.array([[3.0, 4.0], [0.0, 0.0]]))
    Array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    squares = jnp.square(x).sum(axis=-1, keepdims=True)
    tiny = squares < 1e-24
    return jnp.where(tiny, 0.0, x * jax.lax.rsqrt(jnp.where(tiny, 1.0, squares)))
