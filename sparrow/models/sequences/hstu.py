"""HSTU: layers of gated attention over a history, with a bias by distance in position and in time."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.kernels import TimeBucket
from sparrow.models.layers.norms import LayerNorm
from sparrow.models.sequences.layout import Layout, Tokens


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
        return HSTULayers(self, rngs=rngs)

    @property
    def attention(self) -> dict[str, Any]:
        """The options of the attention: whom an element attends to, and how distances in time become buckets."""
        reach = None if self.max_attn_len is None else self.max_attn_len - 1
        buckets = {"time_bucket_fn": self.time_bucket_fn, "time_unit": self.time_bucket_increments}
        return {"max_distance": reach, **buckets}


class HSTULayer(nnx.Module):
    """One layer of `HSTU`."""

    def __init__(self, hstu: HSTU, *, rngs: nnx.Rngs) -> None:
        self.hstu = hstu
        self.heads, self.hidden, self.attention = hstu.num_heads, hstu.hidden_dim, hstu.attention_dim
        self.scale = 1 / hstu.scaling_seqlen
        width = hstu.num_heads * hstu.hidden_dim
        self.norm = LayerNorm(hstu.embedding_dim, rngs=rngs)
        self.project = nnx.Linear(hstu.embedding_dim, 2 * width + 2 * hstu.num_heads * hstu.attention_dim, rngs=rngs)
        self.mixed_norm = LayerNorm(width, rngs=rngs)
        self.output = nnx.Linear(width, hstu.embedding_dim, rngs=rngs)
        ratio = hstu.output_dropout_ratio
        self.dropout = nnx.Dropout(ratio, rngs=rngs) if ratio else nnx.data(None)

    def __call__(self, x: jax.Array, layout: Layout, biases: Any, times: jax.Array | None) -> jax.Array:
        """Map ``(tokens, dim)`` to the same shape; biases and times are those of `Layout.attend`."""
        width, reach = self.heads * self.hidden, self.heads * self.attention
        parts = jnp.split(jax.nn.silu(self.project(self.norm(x))), [width, 2 * width, 2 * width + reach], axis=-1)
        v, q, k = (part.reshape(x.shape[0], self.heads, -1) for part in parts[1:])
        mixed = layout.attend(q, k, v, biases, times, scale=self.scale, **self.hstu.attention).reshape(
            x.shape[0], width
        )
        y = self.output(self.mixed_norm(mixed) * parts[0])
        return x + (y if self.dropout is None else self.dropout(y))


class HSTULayers(nnx.Module):
    """The layers that an `HSTU` describes.

    >>> from sparrow.models.inputs import Sequence
    >>> hstu = HSTU(embedding_dim=4, num_heads=2, hidden_dim=3, attention_dim=2, scaling_seqlen=8, attn_num_layers=2)
    >>> seen, item = Sequence(jnp.ones((2, 5, 4)), jnp.array([5, 0])), Sequence(jnp.ones((2, 3, 4)), jnp.array([3, 1]))
    >>> tokens = Tokens(jnp.ones((2, 0, 4)), seen.rows, item.rows, most=5, most_candidates=3)
    >>> x, layout = hstu.build(rngs=nnx.Rngs(0))(tokens)
    >>> x.shape, layout.of_candidates(x).shape
    ((16, 4), (2, 3, 4))
    """

    def __init__(self, hstu: HSTU, *, rngs: nnx.Rngs) -> None:
        self.hstu = hstu
        self.layers = nnx.List([HSTULayer(hstu, rngs=rngs) for _ in range(hstu.attn_num_layers)])
        small = nnx.initializers.normal(0.02)

        def biases(buckets: int) -> nnx.List[nnx.Param[jax.Array]]:
            return nnx.List([nnx.Param(small(rngs.params(), (buckets,))) for _ in range(hstu.attn_num_layers)])

        self.position = biases(hstu.num_position_buckets)
        self.time = nnx.data(None) if hstu.num_time_buckets is None else biases(hstu.num_time_buckets)

    def __call__(self, tokens: Tokens) -> tuple[jax.Array, Layout]:
        """Return one vector for each token, ``(tokens, dim)``, and where they are.

        Context is the first element of a history. A candidate attends to the history and to itself, as if it alone were
        the next element: the history is read once for all of them.
        """
        if (tokens.times is None) != (self.time is None):
            missing = "times" if tokens.times is None else "num_time_buckets"
            raise ValueError(f"HSTU reads times by num_time_buckets, and {missing} is missing; give both or neither")
        x, joined = Layout.join(tokens)
        layout, times = joined.with_context_as_history(), None
        if tokens.times is not None:
            times = joined.numbers(x, tokens.times.rows, tokens.candidate_times)
            place, start = joined.of_tokens(x, tokens.start_time)
            times = jnp.where(place < joined.context, start, times)
        for index, layer in enumerate(self.layers):
            biases = {"position_bias": self.position[index][...]}
            if self.time is not None:
                biases["time_bias"] = self.time[index][...]
            x = layer(x, layout, biases, times)
        return x, layout
