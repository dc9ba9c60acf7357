"""HSTU and STU: layers of gated attention over context, history and candidates."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.kernels import TimeBucket, time_buckets
from sparrow.models.layers.norms import HeadNorm, LayerNorm
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
      input_dropout_ratio: the share of the input that a training step leaves out.
      output_dropout_ratio: the share of each layer's result that a training step leaves out.
      max_attn_len: the number of elements that one attends to, itself included; None for all.
    """

    embedding_dim: fields.Count
    num_heads: fields.Count
    hidden_dim: fields.Count
    attention_dim: fields.Count
    scaling_seqlen: fields.Count
    attn_num_layers: fields.Count = 3
    num_position_buckets: fields.Count = 128
    num_time_buckets: fields.Count | None = None
    time_bucket_fn: TimeBucket = "sqrt"
    time_bucket_increments: fields.Positive = 60.0
    input_dropout_ratio: fields.Share = 0.0
    output_dropout_ratio: fields.Share = 0.0
    max_attn_len: fields.Count | None = None

    def __post_init__(self) -> None:
        fields.check(self)

    def build(self, *, rngs: nnx.Rngs) -> HSTULayers:
        return HSTULayers(self, rngs=rngs)


class GatedLayer(nnx.Module):
    """The first half of a layer of `HSTU` or `STU`: ``u``, and the values that attention has mixed for each token."""

    def __init__(self, options: HSTU | STU, *, epsilon: float, rngs: nnx.Rngs) -> None:
        self.heads, self.scale = options.num_heads, 1 / options.scaling_seqlen
        self.width, self.reach = options.num_heads * options.hidden_dim, options.num_heads * options.attention_dim
        self.norm = LayerNorm(options.embedding_dim, epsilon=epsilon, rngs=rngs)
        self.project = nnx.Linear(options.embedding_dim, 2 * (self.width + self.reach), rngs=rngs)

    @property
    def shift(self) -> jax.Array:
        """The bias of the projection."""
        assert self.project.bias is not None
        return self.project.bias[...]

    def gate_and_mixed(self, x: jax.Array, layout: Layout, *args: Any, **options: Any) -> tuple[jax.Array, jax.Array]:
        """Return ``u`` and ``[Σ_j a_ij v_j of all heads]`` from x, projected; arguments as of `Layout.attend`."""
        cuts = [self.width, 2 * self.width, 2 * self.width + self.reach]
        u, *parts = jnp.split(jax.nn.silu(x), cuts, axis=-1)
        v, q, k = (part.reshape(x.shape[0], self.heads, -1) for part in parts)
        return u, layout.attend(q, k, v, *args, scale=self.scale, **options).reshape(x.shape[0], self.width)


class HSTULayer(GatedLayer):
    """One layer of `HSTU`."""

    def __init__(self, hstu: HSTU, *, rngs: nnx.Rngs) -> None:
        super().__init__(hstu, epsilon=1e-5, rngs=rngs)
        self.max_distance = None if hstu.max_attn_len is None else hstu.max_attn_len - 1
        self.buckets = (hstu.time_bucket_fn, hstu.time_bucket_increments)
        self.mixed_norm = LayerNorm(self.width, rngs=rngs)
        self.output = nnx.Linear(self.width, hstu.embedding_dim, rngs=rngs)
        ratio = hstu.output_dropout_ratio
        self.dropout = nnx.Dropout(ratio, rngs=rngs if ratio else None)

    def __call__(
        self, x: jax.Array, added: jax.Array | None, layout: Layout, biases: Any, times: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Map ``x + added``, ``(tokens, dim)``, to two such arrays; biases and times are those of `Layout.attend`."""
        options = {"max_distance": self.max_distance, "time_bucket_fn": self.buckets[0], "time_unit": self.buckets[1]}
        x, normed = self.norm.of_sum(x, added)
        u, mixed = self.gate_and_mixed(self.project(normed), layout, biases, times, **options)
        y = self.output(self.mixed_norm(mixed) * u)
        return x, self.dropout(y)


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
        ratio = hstu.input_dropout_ratio
        self.dropout = nnx.Dropout(ratio, rngs=rngs if ratio else None)

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
        x = self.dropout(x)
        added: jax.Array | None = None
        for index, layer in enumerate(self.layers):
            biases = {"position_bias": self.position[index][...]}
            if self.time is not None:
                biases["time_bias"] = self.time[index][...]
            x, added = layer(x, added, layout, biases, times)
        return x if added is None else x + added, layout


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
      use_group_norm: whether m is normalized in each head instead of over all.
      input_dropout_ratio: the share of the input that a training step leaves out.
      output_dropout_ratio: the share of each layer's [u, m, norm(m) * u] that a training step leaves out.
      max_attn_len: the largest distance that an element attends to; None for all.
      sla_k1: with sla_k1 or sla_k2, an element attends to the sla_k1 newest up to itself alone,
      sla_k2: and to the first sla_k2 of context and history; a candidate then does not attend to itself.
      truncation_split_layer: the layer from which on the history is cut; None: nowhere.
      truncation_tail_len: the elements of the history that are left then, the newest.
    """

    embedding_dim: fields.Count
    num_heads: fields.Count
    hidden_dim: fields.Count
    attention_dim: fields.Count
    scaling_seqlen: fields.Count
    num_position_buckets: fields.Count
    attn_num_layers: fields.Count = 3
    num_time_buckets: fields.Count | None = None
    time_bucket_fn: TimeBucket = "sqrt"
    time_bucket_increments: fields.Positive = 60.0
    attn_alpha: float | None = None
    use_group_norm: bool = False
    input_dropout_ratio: fields.Share = 0.0
    output_dropout_ratio: fields.Share = 0.0
    max_attn_len: fields.Count | None = None
    sla_k1: fields.CountOrZero = 0
    sla_k2: fields.CountOrZero = 0
    truncation_split_layer: fields.Count | None = None
    truncation_tail_len: fields.Count | None = None

    def __post_init__(self) -> None:
        fields.check(self)
        if (self.truncation_split_layer is None) != (self.truncation_tail_len is None):
            raise ValueError("STU.truncation_split_layer and truncation_tail_len go together; give both or neither")
        if self.truncation_split_layer is not None and self.truncation_split_layer >= self.attn_num_layers:
            raise ValueError(
                f"STU.truncation_split_layer must be below attn_num_layers, {self.attn_num_layers}, got "
                f"{self.truncation_split_layer}"
            )

    @property
    def why_no_states(self) -> str | None:
        """Why states of a history cannot be kept for later candidates; None: they can."""
        if self.num_time_buckets is not None:
            return "positions and times count back from the request with STU.num_time_buckets"
        if self.truncation_split_layer is not None:
            return "STU.truncation_split_layer cuts other elements off as the history grows"
        return None

    def build(self, *, rngs: nnx.Rngs) -> STULayers:
        return STULayers(self, rngs=rngs)


class STULayer(GatedLayer):
    """One layer of `STU`."""

    def __init__(self, stu: STU, *, rngs: nnx.Rngs) -> None:
        super().__init__(stu, epsilon=1e-6, rngs=rngs)
        self.alpha = stu.attention_dim**-0.5 if stu.attn_alpha is None else stu.attn_alpha
        self.max_distance, self.sla = stu.max_attn_len, (stu.sla_k1, stu.sla_k2)
        self.mixed_norm: LayerNorm | HeadNorm
        if stu.use_group_norm:
            self.mixed_norm = HeadNorm(stu.num_heads, epsilon=1e-6)
        else:
            self.mixed_norm = LayerNorm(self.width, epsilon=1e-6, rngs=rngs)
        self.output = nnx.Linear(3 * self.width, stu.embedding_dim, use_bias=False, rngs=rngs)
        ratio = stu.output_dropout_ratio
        self.dropout = nnx.Dropout(ratio, rngs=rngs if ratio else None)

    def __call__(self, x: jax.Array, added: jax.Array | None, layout: Layout) -> tuple[jax.Array, jax.Array]:
        """Map ``x + added``, ``(tokens, dim)``, to two such arrays."""
        options = {"max_distance": self.max_distance, "sla_k1": self.sla[0], "sla_k2": self.sla[1], "alpha": self.alpha}
        x, normed = self.norm.of_sum(x, added)
        kernel, y = self.project.kernel[...], None
        if isinstance(self.mixed_norm, LayerNorm):
            y = layout.gated(normed, kernel, self.shift, self.mixed_norm, self.heads, scale=self.scale, **options)
        if y is None:
            u, mixed = self.gate_and_mixed(normed @ kernel + self.shift, layout, **options)
            y = jnp.concatenate([u, mixed, self.mixed_norm(mixed) * u], axis=-1)
        return x, self.output(self.dropout(y))


class STULayers(nnx.Module):
    """The layers that an `STU` describes.

    >>> stu = STU(4, 2, 3, 2, scaling_seqlen=8, num_position_buckets=8, attn_num_layers=2)
    >>> from sparrow.models.inputs import Sequence
    >>> seen, item = Sequence(jnp.ones((2, 5, 4)), jnp.array([5, 0])), Sequence(jnp.ones((2, 3, 4)), jnp.array([3, 1]))
    >>> tokens = Tokens(jnp.ones((2, 1, 4)), seen.rows, item.rows, most=5, most_candidates=3)
    >>> x, layout = stu.build(rngs=nnx.Rngs(0))(tokens)
    >>> x.shape, layout.offsets.tolist(), layout.of_candidates(x).shape
    ((18, 4), [0, 9, 11], (2, 3, 4))
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
        self.dropout = nnx.Dropout(ratio, rngs=rngs if ratio else None)

    def __call__(self, tokens: Tokens) -> tuple[jax.Array, Layout]:
        """Return one vector per token, ``(tokens, dim)``, and where they are; without those that the layers cut off."""
        x, layout = Layout.join(tokens)
        x = x * self.stu.embedding_dim**0.5 + self._places(tokens, x, layout).astype(x.dtype)
        x = self.dropout(x)
        added: jax.Array | None = None
        for index, layer in enumerate(self.layers):
            if index == self.stu.truncation_split_layer:
                x, added = x if added is None else x + added, None
                tail = self.stu.truncation_tail_len or 0
                x, layout = layout.without(x, jnp.maximum(layout.history - tail, 0), tail)
            x, added = layer(x, added, layout)
        return x if added is None else x + added, layout

    def _places(self, tokens: Tokens, x: jax.Array, layout: Layout) -> jax.Array:
        """Return the sum of the vectors of position and time, ``(tokens, dim)``."""
        context = layout.context
        request = tokens.request_time
        place, history, now = layout.of_tokens(x, layout.history + layout.before, request)
        end = context + history
        if self.time is None or tokens.times is None:
            return layout.at_places(self.position[...], jnp.minimum(place, end))
        # Places count back from the candidates.
        places = jnp.where(place < context, place, context + jnp.maximum(end - place, 0))
        made = layout.looked_up(self.position[...], places)
        ages = now - layout.numbers(x, tokens.times.rows, tokens.candidate_times)
        buckets = time_buckets(ages, self.stu.time_bucket_fn, self.stu.time_bucket_increments, self.time.shape[0])
        return made + layout.looked_up(self.time[...], buckets)
