"""Attention of the elements of a history to each other."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Sequence
from sparrow.models.sequences.layout import elements_of


class SelfAttention(nnx.Module):
    """Multi-head attention between the elements, and the mean of what they become.

    ::

        q, k, v = x W_q + b_q, x W_k, x W_v + b_v                    split into num_heads heads
        h_l     = Σ_m softmax(<q_l, k_m> / √(dim of a head))_m v_m    over the elements that are there
        out     = Σ_l (h_l W_o + b_o) / max(n, 1)                    n: the example's length

    >>> attention = SelfAttention(4, attention_dim=8, num_heads=2, rngs=nnx.Rngs(0))
    >>> attention(Sequence(jnp.ones((2, 3, 4)), jnp.array([3, 0]))).shape
    (2, 8)

    Reference: Vaswani et al., 2017, arXiv 1706.03762.

    Attributes:
      dim: the length of the output, ``attention_dim``.
    """

    def __init__(
        self,
        dim: int,
        *,
        attention_dim: int = 512,
        num_heads: int = 8,
        dropout_ratio: float = 0.0,
        max_length: int | None = None,
        rngs: nnx.Rngs,
    ) -> None:
        fields.integer("attention_dim", attention_dim)
        fields.integer("num_heads", num_heads)
        fields.number("dropout_ratio", dropout_ratio, at_least=0, below=1)
        if attention_dim % num_heads:
            raise ValueError(f"attention_dim must be a multiple of num_heads={num_heads}, got {attention_dim}")
        self.query, self.value = (nnx.Linear(dim, attention_dim, rngs=rngs) for _ in range(2))
        self.key = nnx.Linear(dim, attention_dim, use_bias=False, rngs=rngs)  # a softmax forgets this bias
        self.output = nnx.Linear(attention_dim, attention_dim, rngs=rngs)
        self.dropout = nnx.Dropout(dropout_ratio, rngs=rngs) if dropout_ratio else nnx.data(None)
        self.dim, self.heads, self.max_length = attention_dim, num_heads, max_length

    def __call__(self, sequence: Sequence) -> jax.Array:
        """Return ``(batch, attention_dim)``."""
        x, layout = elements_of(sequence, self.max_length)
        q, k, v = (part.reshape(x.shape[0], self.heads, -1) for part in (self.query(x), self.key(x), self.value(x)))
        mixed = layout.attend(q, k, v, score="softmax", alpha=q.shape[2] ** -0.5, in_any_order=True)
        mixed = self.output(mixed.reshape(x.shape[0], -1))
        if self.dropout is not None:
            mixed = self.dropout(mixed)
        return (layout.summed(mixed.astype(jnp.float32)) / jnp.maximum(layout.history, 1)[:, None]).astype(x.dtype)
