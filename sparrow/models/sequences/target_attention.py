"""Attention of a candidate to a history: the weight of an element depends on both."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Sequence
from sparrow.models.layers.mlp import MLP
from sparrow.models.sequences.layout import elements_of


class TargetAttention(nnx.Module):
    """The attention of DIN: a network scores each element of the history against the candidate.

    ::

        score_l = linear(MLP([q, x_l, q - x_l, q * x_l]))
        out     = Σ_l softmax(score)_l * x_l                         over the elements that are there

    The candidate ``q`` may be shorter than an element: zeros are put behind it.

    >>> attention = TargetAttention(4, 4, MLP((8,)), rngs=nnx.Rngs(0))
    >>> attention(Sequence(jnp.ones((2, 3, 4)), jnp.array([3, 0])), jnp.ones((2, 4)))[:, 0].tolist()
    [1.0, 0.0]

    Reference: Zhou et al., Deep Interest Network, 2018, arXiv 1706.06978; with a softmax, as in TorchEasyRec.
    """

    def __init__(
        self, dim: int, query_dim: int, attn_mlp: MLP, *, max_length: int | None = None, rngs: nnx.Rngs
    ) -> None:
        check_query(dim, query_dim)
        self.mlp = attn_mlp.build(4 * dim, rngs=rngs)
        self.linear = nnx.Linear(attn_mlp.dim, 1, use_bias=False, rngs=rngs)  # a softmax forgets a bias
        self.dim, self.max_length = dim, max_length

    def __call__(self, sequence: Sequence, query: jax.Array) -> jax.Array:
        x, layout = elements_of(sequence, self.max_length)
        q = layout.spread(x, widened(query, self.dim).astype(x.dtype))
        scores = self.linear(self.mlp(jnp.concatenate([q, x, q - x, q * x], axis=1)))
        return layout.summed(layout.softmax(scores).astype(x.dtype) * x)


class SimpleAttention(nnx.Module):
    """``out = Σ_l softmax(<q, x_l>)_l * x_l`` over the elements that are there; q as long as an element.

    >>> SimpleAttention()(Sequence(jnp.ones((1, 3, 2)), jnp.array([2])), jnp.ones((1, 2)))
    Array([[1., 1.]], dtype=float32)
    """

    def __init__(self, max_length: int | None = None) -> None:
        self.max_length = max_length

    def __call__(self, sequence: Sequence, query: jax.Array) -> jax.Array:
        x, layout = elements_of(sequence, self.max_length)
        scores = jnp.einsum("td,td->t", x, layout.spread(x, query.astype(x.dtype)))[:, None]
        return layout.summed(layout.softmax(scores).astype(x.dtype) * x)


class WindowAttention(nnx.Module):
    """Attention to each of several windows of the history, one after the other, and the candidate itself.

    ::

        a_l   = prelu(linear(MLP([x_l, q * x_l, q])))
        out_w = Σ_{l in window w} a_l * x_l / max(elements in window w, 1)
        out   = [out_1, out_2, ..., q]

    >>> attention = WindowAttention(4, 4, MLP((8,)), (1, 2), rngs=nnx.Rngs(0))
    >>> attention(Sequence(jnp.ones((2, 3, 4)), jnp.array([3, 0])), jnp.ones((2, 4))).shape
    (2, 12)

    Reference: Zhu et al., Learning Tree-based Deep Model for Recommender Systems, 2018, arXiv 1801.02294.
    """

    def __init__(
        self, dim: int, query_dim: int, attn_mlp: MLP, windows_len: tuple[int, ...], *, rngs: nnx.Rngs
    ) -> None:
        check_query(dim, query_dim)
        if not windows_len:
            raise ValueError("windows_len must be a list of at least one length, got none")
        for length in windows_len:
            fields.integer("windows_len", length)
        self.mlp = attn_mlp.build(3 * dim, rngs=rngs)
        self.linear = nnx.Linear(attn_mlp.dim, 1, rngs=rngs)
        self.activation = nnx.PReLU(negative_slope_init=0.25)
        self.windows = tuple(windows_len)
        self.element, self.dim = dim, dim * (len(windows_len) + 1)

    def __call__(self, sequence: Sequence, query: jax.Array) -> jax.Array:
        x, layout = elements_of(sequence, sum(self.windows))
        q = widened(query, self.element).astype(x.dtype)
        wide = layout.spread(x, q)
        weights = self.activation(self.linear(self.mlp(jnp.concatenate([x, wide * x, wide], axis=1))))
        (place,) = layout.of_tokens(x)
        parts, end = [], 0
        for size in self.windows:
            here = (place >= end) & (place < end + size)
            count = jnp.clip(layout.history - end, 1, size)[:, None].astype(x.dtype)
            parts.append(layout.summed(jnp.where(here[:, None], weights.astype(x.dtype) * x, 0)) / count)
            end += size
        return jnp.concatenate([*parts, q], axis=1)


def check_query(dim: int, query_dim: int) -> None:
    """Raise ValueError where a candidate is longer than an element of the history, or missing."""
    if not 0 < query_dim <= dim:
        raise ValueError(
            f"attention needs a candidate of 1 to {dim} numbers, as many as an element of the history; got {query_dim}"
        )


def widened(query: jax.Array, dim: int) -> jax.Array:
    """Return the candidate ``(batch, query_dim)`` with zeros behind it, ``(batch, dim)``."""
    return jnp.pad(query, ((0, 0), (0, dim - query.shape[1])))
