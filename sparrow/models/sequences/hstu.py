"""HSTU: layers of gated attention over a history, with a bias by distance in position and in time."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Sequence
from sparrow.models.norms import LayerNorm
from sparrow.models.sequences.attention import pointwise_attention
from sparrow.models.sequences.time_buckets import TimeBucket, time_buckets


@dataclasses.dataclass(frozen=True)
class HSTU:
    """Layers of hierarchical sequential transduction units: one vector per element, of what came before it.

    ::

        u, v, q, k = silu(norm(x) W + b)                                   split; u, v: hidden_dim per head
        bias_ij    = b_position[i - j] + b_time[bucket(t_i - t_j)]          both clipped to the last bucket
        a_ij       = silu(<q_i, k_j> + bias_ij) / N                        j <= i, i - j < max_attn_len
        x'         = x + (norm([Σ_j a_ij v_j of all heads]) * u) W_o + c

    ``N`` is ``scaling_seqlen``; ``bucket`` is the integer part of √(d / time_bucket_increments) or of
    log(max(d / time_bucket_increments, 1)). Sums over elements are no averages: how long a history is counts.

    Reference: Zhai et al., Actions Speak Louder than Words, ICML 2024, arXiv 2402.17152.

    Attributes:
      embedding_dim: the length of the vectors.
      num_heads: the number of heads.
      hidden_dim: the length of u and v, per head.
      attention_dim: the length of q and k, per head.
      scaling_seqlen: the divisor of the attention, usually the longest history.
      attn_num_layers: the number of layers.
      num_position_buckets: the number of distances in position that have a bias of their own.
      num_time_buckets: the same for distances in time; None: times are not read.
      time_bucket_fn: "sqrt" or "log".
      time_bucket_increments: the unit of time.
      output_dropout_ratio: the share of each layer's result that a training step leaves out.
      max_attn_len: the number of elements that one attends to, itself included; None for all.
    """

    embedding_dim: int
    num_heads: int
    hidden_dim: int
    attention_dim: int
    scaling_seqlen: int
    attn_num_layers: int = 3
    num_position_buckets: int = 128
    num_time_buckets: int | None = None
    time_bucket_fn: TimeBucket = "sqrt"
    time_bucket_increments: float = 60.0
    output_dropout_ratio: float = 0.0
    max_attn_len: int | None = None

    def __post_init__(self) -> None:
        required = ("embedding_dim", "num_heads", "hidden_dim", "attention_dim", "scaling_seqlen", "attn_num_layers")
        for name in (*required, "num_position_buckets", "num_time_buckets", "max_attn_len"):
            value = getattr(self, name)
            if value is not None:
                fields.integer(f"HSTU.{name}", value)
        if self.time_bucket_fn not in ("sqrt", "log"):
            raise ValueError(f"HSTU.time_bucket_fn must be 'sqrt' or 'log', got {self.time_bucket_fn!r}")
        fields.number("HSTU.time_bucket_increments", self.time_bucket_increments, above=0)
        fields.number("HSTU.output_dropout_ratio", self.output_dropout_ratio, at_least=0, below=1)

    def build(self, *, rngs: nnx.Rngs) -> HSTULayers:
        """Return the layers."""
        return HSTULayers(self, rngs=rngs)

    def time_buckets(self, distances: jax.Array) -> jax.Array:
        """Return the bucket of each distance in time; one that is negative counts as 0.

        >>> hstu = HSTU(4, 1, 4, 4, 8, num_time_buckets=4)
        >>> hstu.time_buckets(jnp.array([-5.0, 59.0, 60.0, 240.0, 9e9])).tolist()
        [0, 0, 1, 2, 3]
        """
        return time_buckets(distances, self.time_bucket_fn, self.time_bucket_increments, self.num_time_buckets or 1)


class HSTULayer(nnx.Module):
    """One layer of `HSTU`."""

    def __init__(self, hstu: HSTU, *, rngs: nnx.Rngs) -> None:
        self.heads, self.hidden, self.attention = hstu.num_heads, hstu.hidden_dim, hstu.attention_dim
        self.scale = 1 / hstu.scaling_seqlen
        width = hstu.num_heads * hstu.hidden_dim
        self.norm = LayerNorm(hstu.embedding_dim, rngs=rngs)
        self.project = nnx.Linear(hstu.embedding_dim, 2 * width + 2 * hstu.num_heads * hstu.attention_dim, rngs=rngs)
        self.mixed_norm = LayerNorm(width, rngs=rngs)
        self.output = nnx.Linear(width, hstu.embedding_dim, rngs=rngs)
        ratio = hstu.output_dropout_ratio
        self.dropout = nnx.Dropout(ratio, rngs=rngs) if ratio else nnx.data(None)

    def __call__(self, x: jax.Array, bias: jax.Array, mask: jax.Array) -> jax.Array:
        """Map ``(batch, length, dim)`` to the same shape; bias and mask are ``(batch or 1, length, length)``."""
        batch, length, _ = x.shape
        width, reach = self.heads * self.hidden, self.heads * self.attention
        parts = jnp.split(jax.nn.silu(self.project(self.norm(x))), [width, 2 * width, 2 * width + reach], axis=-1)
        u, v, q, k = (part.reshape(batch, length, self.heads, -1) for part in parts)
        mixed = pointwise_attention(q, k, v, bias, mask, self.scale).reshape(batch, length, width)
        y = self.output(self.mixed_norm(mixed) * u.reshape(batch, length, width))
        return x + (y if self.dropout is None else self.dropout(y))


class HSTULayers(nnx.Module):
    """The layers that an `HSTU` describes.

    >>> hstu = HSTU(embedding_dim=4, num_heads=2, hidden_dim=3, attention_dim=2, scaling_seqlen=8, attn_num_layers=2)
    >>> hstu.build(rngs=nnx.Rngs(0))(Sequence(jnp.ones((2, 5, 4)), jnp.array([5, 0]))).values.shape
    (2, 5, 4)
    """

    def __init__(self, hstu: HSTU, *, rngs: nnx.Rngs) -> None:
        self.hstu = hstu
        self.layers = nnx.List([HSTULayer(hstu, rngs=rngs) for _ in range(hstu.attn_num_layers)])
        small = nnx.initializers.normal(0.02)

        def biases(buckets: int) -> nnx.List[nnx.Param[jax.Array]]:
            return nnx.List([nnx.Param(small(rngs.params(), (buckets,))) for _ in range(hstu.attn_num_layers)])

        self.position = biases(hstu.num_position_buckets)
        self.time = nnx.data(None) if hstu.num_time_buckets is None else biases(hstu.num_time_buckets)

    def __call__(self, sequence: Sequence, times: jax.Array | None = None) -> Sequence:
        """Return one vector for each element.

        Args:
          sequence: ``(batch, length, embedding_dim)``, the oldest element first.
          times: ``(batch, length)``, when each element was; needed with ``num_time_buckets``.
        """
        self._check(times)
        places = np.arange(sequence.values.shape[1])[None]
        x = self._layers(sequence.clean, places, sequence.mask[:, None], times)
        return Sequence(x, sequence.lengths)

    def rank(
        self,
        history: Sequence,
        candidates: Sequence,
        times: jax.Array | None = None,
        candidate_times: jax.Array | None = None,
    ) -> jax.Array:
        """Return one vector for each candidate, as if it alone were the next element of the history.

        A candidate attends to the history and to itself, so the history is read once for all of them.

        >>> hstu = HSTU(embedding_dim=4, num_heads=2, hidden_dim=3, attention_dim=2, scaling_seqlen=8)
        >>> seen = Sequence(jnp.ones((2, 5, 4)), jnp.array([5, 0]))
        >>> items = Sequence(jnp.ones((2, 3, 4)), jnp.array([3, 1]))
        >>> hstu.build(rngs=nnx.Rngs(0)).rank(seen, items).shape
        (2, 3, 4)

        Args:
          history: ``(batch, length, embedding_dim)``, the oldest element first.
          candidates: ``(batch, candidates, embedding_dim)``, in any order.
          times: ``(batch, length)``, when each element was; needed with ``num_time_buckets``.
          candidate_times: ``(batch, candidates)``, the same for the candidates.
        """
        self._check(times)
        self._check(candidate_times)
        length, count = history.values.shape[1], candidates.values.shape[1]
        batch = history.values.shape[0]
        places = jnp.broadcast_to(jnp.arange(length), (batch, length))
        places = jnp.concatenate([places, jnp.broadcast_to(history.lengths[:, None], (batch, count))], axis=1)
        of_history = np.arange(length + count) < length
        seen = of_history | np.eye(length + count, dtype=bool)  # by all elements, or by itself alone
        there = jnp.concatenate([history.mask, candidates.mask], axis=1)
        x = jnp.concatenate([history.clean, candidates.clean.astype(history.values.dtype)], axis=1)
        if times is not None and candidate_times is not None:
            times = jnp.concatenate([times, candidate_times], axis=1)
        return self._layers(x, places, there[:, None] & seen, times)[:, length:]

    def _check(self, times: jax.Array | None) -> None:
        if (times is None) != (self.time is None):
            missing = "times" if times is None else "num_time_buckets"
            raise ValueError(f"HSTU reads times by num_time_buckets, and {missing} is missing; give both or neither")

    def _layers(self, x: jax.Array, places: Any, mask: jax.Array, times: jax.Array | None) -> jax.Array:
        """Run all layers. ``places``: ``(batch or 1, length)``; the mask leaves out what no element attends to."""
        distance = places[:, :, None] - places[:, None]
        mask = mask & (distance >= 0)
        if self.hstu.max_attn_len is not None:
            mask = mask & (distance < self.hstu.max_attn_len)
        position = jnp.clip(distance, 0, self.hstu.num_position_buckets - 1)
        buckets = None if times is None else self.hstu.time_buckets(times[:, :, None] - times[:, None])
        for index, layer in enumerate(self.layers):
            bias = self.position[index][...][position]
            if self.time is not None and buckets is not None:
                bias = bias + self.time[index][...][buckets]
            x = layer(x, bias, mask)
        return x


def prepend(element: jax.Array, sequence: Sequence) -> Sequence:
    """Return the sequences with one more element, ``(batch, dim)``, before the first.

    >>> prepend(jnp.ones((1, 1)), Sequence(jnp.zeros((1, 2, 1)), jnp.array([0]))).lengths.tolist()
    [1]
    """
    element = element[:, None].astype(sequence.values.dtype)
    return Sequence(jnp.concatenate([element, sequence.values], axis=1), sequence.lengths + 1)


def last(sequence: Sequence) -> jax.Array:
    """Return the last element of each sequence, ``(batch, dim)``; zeros of an empty one.

    >>> last(Sequence(jnp.arange(4.0).reshape(2, 2, 1), jnp.array([1, 0]))).tolist()
    [[0.0], [0.0]]
    """
    here = jnp.arange(sequence.values.shape[1]) == sequence.lengths[:, None] - 1
    return jnp.where(here[..., None], sequence.values, 0).sum(axis=1)
