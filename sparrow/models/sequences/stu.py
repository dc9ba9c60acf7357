"""STU: layers of gated attention over context, history and candidates, with positions and times added to the input."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Sequence
from sparrow.models.norms import HeadNorm, LayerNorm
from sparrow.models.sequences.attention import pointwise_attention
from sparrow.models.sequences.time_buckets import TimeBucket, time_buckets


@dataclasses.dataclass(frozen=True)
class STU:
    """Layers of sequential transduction units, as rankers of generative recommenders have them.

    ::

        x          = √embedding_dim token + position + time            the latter with num_time_buckets
        u, v, q, k = silu(norm(x) W + b)                               split; u, v: hidden_dim per head
        a_ij       = silu(attn_alpha <q_i, k_j>) / scaling_seqlen      for each j that i attends to
        m_i        = [Σ_j a_ij v_j of all heads]
        x'         = x + dropout([u, m, norm(m) * u]) W_o

    An element of the history attends to the context, to itself and to the elements before it; the context to itself
    and to the history; a candidate to all of these and to itself. With times, an element's position counts back from
    the candidates, which have that of the context's end, and its time is that before the request: the time of the last
    candidate, or of the last element without candidates. Without times, positions count from the start.

    Reference: Zhai et al., Actions Speak Louder than Words, ICML 2024, arXiv 2402.17152, and its published program.

    Attributes:
      embedding_dim: the length of the vectors.
      num_heads: the number of heads.
      hidden_dim: the length of u and v, per head.
      attention_dim: the length of q and k, per head.
      scaling_seqlen: the divisor of the attention, usually the longest history.
      num_position_buckets: the number of positions that have a vector of their own.
      attn_num_layers: the number of layers.
      num_time_buckets: the number of times that have a vector of their own; None: times are not read.
      time_bucket_fn: "sqrt" or "log".
      time_bucket_increments: the unit of time.
      attn_alpha: the factor of the products; None: 1 / √attention_dim.
      use_group_norm: whether m is normalised in each head instead of over all.
      input_dropout_ratio: the share of the input that a training step leaves out.
      output_dropout_ratio: the share of each layer's [u, m, norm(m) * u] that a training step leaves out.
      max_attn_len: the largest distance that an element attends to; None for all.
      sla_k1: with sla_k1 or sla_k2, an element attends to the sla_k1 newest up to itself alone,
      sla_k2: and to the first sla_k2 of context and history; a candidate then does not attend to itself.
      truncation_split_layer: the layer from which on the history is cut; None: nowhere.
      truncation_tail_len: the elements of the history that are left then, the newest.
    """

    embedding_dim: int
    num_heads: int
    hidden_dim: int
    attention_dim: int
    scaling_seqlen: int
    num_position_buckets: int
    attn_num_layers: int = 3
    num_time_buckets: int | None = None
    time_bucket_fn: TimeBucket = "sqrt"
    time_bucket_increments: float = 60.0
    attn_alpha: float | None = None
    use_group_norm: bool = False
    input_dropout_ratio: float = 0.0
    output_dropout_ratio: float = 0.0
    max_attn_len: int | None = None
    sla_k1: int = 0
    sla_k2: int = 0
    truncation_split_layer: int | None = None
    truncation_tail_len: int | None = None

    def __post_init__(self) -> None:
        required = ("embedding_dim", "num_heads", "hidden_dim", "attention_dim", "scaling_seqlen", "attn_num_layers")
        optional = ("num_time_buckets", "max_attn_len", "truncation_split_layer", "truncation_tail_len")
        for name in (*required, "num_position_buckets", *optional):
            if (value := getattr(self, name)) is not None:
                fields.integer(f"STU.{name}", value)
        for name in ("sla_k1", "sla_k2"):
            fields.integer(f"STU.{name}", getattr(self, name), at_least=0)
        fields.choice("STU.time_bucket_fn", self.time_bucket_fn, ("sqrt", "log"))
        fields.number("STU.time_bucket_increments", self.time_bucket_increments, above=0)
        for name in ("input_dropout_ratio", "output_dropout_ratio"):
            fields.number(f"STU.{name}", getattr(self, name), at_least=0, below=1)
        if (self.truncation_split_layer is None) != (self.truncation_tail_len is None):
            raise ValueError("STU.truncation_split_layer and truncation_tail_len go together; give both or neither")
        if self.truncation_split_layer is not None and self.truncation_split_layer >= self.attn_num_layers:
            raise ValueError(
                f"STU.truncation_split_layer must be below attn_num_layers, {self.attn_num_layers}, got "
                f"{self.truncation_split_layer}"
            )

    def build(self, *, rngs: nnx.Rngs) -> STULayers:
        """Return the layers."""
        return STULayers(self, rngs=rngs)


class STULayer(nnx.Module):
    """One layer of `STU`."""

    def __init__(self, stu: STU, *, rngs: nnx.Rngs) -> None:
        self.heads, self.hidden, self.attention = stu.num_heads, stu.hidden_dim, stu.attention_dim
        self.scale = 1 / stu.scaling_seqlen
        self.alpha = stu.attention_dim**-0.5 if stu.attn_alpha is None else stu.attn_alpha
        width = stu.num_heads * stu.hidden_dim
        self.norm = LayerNorm(stu.embedding_dim, epsilon=1e-6, rngs=rngs)
        self.project = nnx.Linear(stu.embedding_dim, 2 * width + 2 * stu.num_heads * stu.attention_dim, rngs=rngs)
        self.mixed_norm: LayerNorm | HeadNorm = (
            HeadNorm(stu.num_heads, epsilon=1e-6) if stu.use_group_norm else LayerNorm(width, epsilon=1e-6, rngs=rngs)
        )
        self.output = nnx.Linear(3 * width, stu.embedding_dim, use_bias=False, rngs=rngs)
        ratio = stu.output_dropout_ratio
        self.dropout = nnx.Dropout(ratio, rngs=rngs) if ratio else nnx.data(None)

    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        """Map ``(batch, tokens, dim)`` to the same shape; the mask is ``(batch, tokens, tokens)``."""
        batch, length, _ = x.shape
        width, reach = self.heads * self.hidden, self.heads * self.attention
        parts = jnp.split(jax.nn.silu(self.project(self.norm(x))), [width, 2 * width, 2 * width + reach], axis=-1)
        u, v, q, k = (part.reshape(batch, length, self.heads, -1) for part in parts)
        mixed = pointwise_attention(self.alpha * q, k, v, None, mask, self.scale).reshape(batch, length, width)
        u = u.reshape(batch, length, width)
        y = jnp.concatenate([u, mixed, self.mixed_norm(mixed) * u], axis=-1)
        return x + self.output(y if self.dropout is None else self.dropout(y))


class Tokens(NamedTuple):
    """The input of `STULayers`.

    Attributes:
      history: ``(batch, length, dim)``, the oldest element first.
      context: ``(batch, features, dim)``; may have no feature.
      candidates: ``(batch, candidates, dim)``; may have none.
      times: ``(batch, length)``, when each element of the history was; None where times are not read.
      candidate_times: ``(batch, candidates)``.
      request: ``(batch,)``, the time of the request; None: that of the last candidate, or else element.
    """

    history: Sequence
    context: jax.Array
    candidates: Sequence
    times: jax.Array | None = None
    candidate_times: jax.Array | None = None
    request: jax.Array | None = None

    @property
    def request_time(self) -> jax.Array:
        """``(batch,)``: the time that others are counted from."""
        if self.request is not None:
            return self.request
        found = jnp.zeros(self.history.lengths.shape, jnp.float32)
        for times, lengths in (
            (self.times, self.history.lengths),
            (self.candidate_times, self.candidates.lengths),
        ):
            if times is not None and times.shape[1]:
                newest = jnp.take_along_axis(times, jnp.maximum(lengths - 1, 0)[:, None], axis=1)[:, 0]
                found = jnp.where(lengths > 0, newest, found)
        return found


class STULayers(nnx.Module):
    """The layers that an `STU` describes.

    >>> stu = STU(4, 2, 3, 2, scaling_seqlen=8, num_position_buckets=8, attn_num_layers=2)
    >>> nothing = Sequence(jnp.ones((2, 0, 4)), jnp.array([0, 0]))
    >>> tokens = Tokens(Sequence(jnp.ones((2, 5, 4)), jnp.array([5, 0])), jnp.ones((2, 1, 4)), nothing)
    >>> stu.build(rngs=nnx.Rngs(0))(tokens).shape
    (2, 6, 4)
    """

    def __init__(self, stu: STU, *, rngs: nnx.Rngs) -> None:
        self.stu = stu
        self.layers = nnx.List([STULayer(stu, rngs=rngs) for _ in range(stu.attn_num_layers)])

        def vectors(count: int, buckets: int) -> nnx.Param[jax.Array]:
            limit = buckets**-0.5
            drawn = jax.random.uniform(rngs.params(), (count, stu.embedding_dim), minval=-limit, maxval=limit)
            return nnx.Param(drawn)

        self.position = vectors(stu.num_position_buckets, stu.num_position_buckets)
        self.time = nnx.data(None)
        if stu.num_time_buckets is not None:
            self.time = vectors(stu.num_time_buckets + 1, stu.num_time_buckets)
        ratio = stu.input_dropout_ratio
        self.dropout = nnx.Dropout(ratio, rngs=rngs) if ratio else nnx.data(None)

    def __call__(self, tokens: Tokens) -> jax.Array:
        """Return one vector per token, ``(batch, features + length + candidates, dim)``."""
        x = jnp.concatenate([tokens.context, tokens.history.clean, tokens.candidates.clean], axis=1)
        x = x * self.stu.embedding_dim**0.5 + self._places(tokens).astype(x.dtype)
        x = x if self.dropout is None else self.dropout(x)
        mask = self._mask(tokens, jnp.zeros_like(tokens.history.lengths))
        for index, layer in enumerate(self.layers):
            if index == self.stu.truncation_split_layer:
                tail = self.stu.truncation_tail_len or 0
                mask = self._mask(tokens, jnp.maximum(tokens.history.lengths - tail, 0))
            x = layer(x, mask)
        return x

    def _places(self, tokens: Tokens) -> jax.Array:
        """Return the sum of the vectors of position and time, ``(batch, tokens, dim)``."""
        batch, length = tokens.history.values.shape[:2]
        context, count = tokens.context.shape[1], tokens.candidates.values.shape[1]
        lengths = tokens.history.lengths[:, None]
        place = jnp.arange(length)[None]
        of_history = context + (jnp.broadcast_to(place, (batch, length)) if self.time is None else lengths - place)
        of_candidates = context + (lengths if self.time is None else jnp.zeros_like(lengths))
        places = jnp.concatenate(
            [
                jnp.broadcast_to(jnp.arange(context), (batch, context)),
                of_history,
                jnp.broadcast_to(of_candidates, (batch, count)),
            ],
            axis=1,
        )
        made = self.position[...][jnp.clip(places, 0, self.stu.num_position_buckets - 1)]
        if self.time is None or tokens.times is None:
            return made
        times = [jnp.zeros((batch, context)), tokens.times]
        times += [] if tokens.candidate_times is None else [tokens.candidate_times]
        ages = tokens.request_time[:, None] - jnp.concatenate(times, axis=1)
        buckets = time_buckets(ages, self.stu.time_bucket_fn, self.stu.time_bucket_increments, self.time.shape[0])
        return made + self.time[...][buckets]

    def _mask(self, tokens: Tokens, dropped: jax.Array) -> jax.Array:
        """Return what each token attends to, ``(batch, tokens, tokens)``, without the ``dropped`` oldest elements."""
        history, candidates = tokens.history, tokens.candidates
        batch, length = history.values.shape[:2]
        context, count = tokens.context.shape[1], candidates.values.shape[1]
        place = jnp.arange(length) - dropped[:, None]
        there = jnp.concatenate(
            [jnp.ones((batch, context), bool), history.mask & (place >= 0), candidates.mask], axis=1
        )
        end = (history.lengths - dropped)[:, None] + context
        local = self.stu.sla_k1 or self.stu.sla_k2
        first = jnp.arange(context) if local else jnp.full(context, context - 1)  # else the context is one place
        at = jnp.concatenate(
            [
                jnp.broadcast_to(first, (batch, context)),
                place + context,
                jnp.broadcast_to(end, (batch, count)),
            ],
            axis=1,
        )
        distance = at[:, :, None] - at[:, None]
        is_candidate = np.arange(context + length + count) >= context + length
        if local:
            near = (distance < self.stu.sla_k1) | (at[:, None] < max(self.stu.sla_k2, context))
            seen = ((distance >= 0) & near) | is_candidate[:, None]
            return seen & ~is_candidate & there[:, None]
        seen = (distance > 0) | np.eye(len(is_candidate), dtype=bool)
        if self.stu.max_attn_len is not None:
            seen = seen & (distance <= self.stu.max_attn_len)
        is_context = np.arange(len(is_candidate)) < context
        return (seen | (is_context[:, None] & ~is_candidate)) & there[:, None]
