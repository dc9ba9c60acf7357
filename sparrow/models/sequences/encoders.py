"""Encoders by name: a history becomes one feature of a group, by pooling or by attention."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Final, Literal, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Sequence, SequenceGroup
from sparrow.models.layers.mlp import MLP
from sparrow.models.records import record_class
from sparrow.models.sequences.layout import elements_of
from sparrow.registry import Registry

E = TypeVar("E", bound=type[nnx.Module])

DESCRIPTIONS: Final = {
    "attn_mlp": "The layers that score each element of the history.",
    "dropout": "The share of attention weights that a training step leaves out.",
    "multihead_attn_dim": "The width of the attention, all heads together.",
    "num_heads": "The number of heads.",
    "pooling_type": "How the elements are pooled.",
    "windows_len": "The lengths of the windows.",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderRecord:
    """An encoder of one group of sequences. `register_encoder` makes one subclass per encoder.

    Attributes:
      input: the name of the group, which holds the sequences and the features that attend to them.
      max_length: the largest number of elements, from the first on; None keeps all.
      model: the class that `build` calls.
      is_per_example: whether the encoding of a history depends on that example alone, batch statistics aside.
    """

    model: ClassVar[type[nnx.Module]]
    input: str
    max_length: int | None = None
    is_per_example: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.max_length is not None:
            fields.integer(f"encoder of '{self.input}': max_length", self.max_length)

    def build(self, group: SequenceGroup, *, rngs: nnx.Rngs) -> Any:
        """Return the encoder, with fresh parameters; its attribute ``dim`` is the length of its output."""
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "input"}
        encoder: Callable[..., Any] = self.model
        return encoder(group, **options, rngs=rngs)


registry: Registry[EncoderRecord] = Registry("encoder", EncoderRecord, descriptions=DESCRIPTIONS)


def register_encoder(name: str) -> Callable[[E], E]:
    """Class decorator: makes an encoder known by ``name``, to config files too.

    The class is an ``nnx.Module`` with ``__init__(self, group, *, <options>, max_length, rngs)``, and the attributes
    ``dim``, the length of its output, and ``attends``, whether it is called with the single features of the group, too.
    """

    def decorate(cls: E) -> E:
        registry.register(name)(record_class(f"encoder '{name}'", "group", cls, EncoderRecord, is_per_example=True))
        return cls

    return decorate


@register_encoder("pooling_encoder")
class PoolingEncoder(nnx.Module):
    """The sum of the elements, or their mean.

    ::

        sum = Σ_{l < n} x_l             mean = sum / max(n, 1)              n: the example's length

    >>> from sparrow.models import Inputs
    >>> group = Inputs(acts={}, sequences={"clicks": 1}, groups={"history": ["clicks"]}).sequence_group("history")
    >>> history = Sequence(jnp.array([[[2.0], [4.0], [9.0]]]), jnp.array([2]))
    >>> PoolingEncoder(group)(history)
    Array([[3.]], dtype=float32)
    """

    attends = False

    def __init__(
        self,
        group: SequenceGroup,
        *,
        pooling_type: Literal["sum", "mean"] = "mean",
        max_length: int | None = None,
        rngs: nnx.Rngs | None = None,
    ) -> None:
        fields.choice("pooling_type", pooling_type, ("sum", "mean"))
        self.dim, self.pooling, self.max_length = group.sequences.dim, pooling_type, max_length

    def __call__(self, sequence: Sequence) -> jax.Array:
        x, layout = elements_of(sequence, self.max_length)
        total = layout.summed(x.astype(jnp.float32))
        if self.pooling == "mean":
            total = total / jnp.maximum(layout.history, 1)[:, None]
        return total.astype(x.dtype)


@register_encoder("din_encoder")
class TargetAttention(nnx.Module):
    """The attention of DIN: a network scores each element of the history against the candidate.

    ::

        score_l = linear(MLP([q, x_l, q - x_l, q * x_l]))
        out     = Σ_l softmax(score)_l * x_l                         over the elements that are there

    The candidate ``q`` may be shorter than an element: zeros are put behind it.

    >>> from sparrow.models import Inputs
    >>> inputs = Inputs(acts={"item": 4}, sequences={"clicks": 4}, groups={"history": ["item", "clicks"]})
    >>> attention = TargetAttention(inputs.sequence_group("history"), attn_mlp=MLP((8,)), rngs=nnx.Rngs(0))
    >>> attention(Sequence(jnp.ones((2, 3, 4)), jnp.array([3, 0])), jnp.ones((2, 4)))[:, 0].tolist()
    [1.0, 0.0]

    Reference: Zhou et al., Deep Interest Network, 2018, arXiv 1706.06978; with a softmax, as in TorchEasyRec.
    """

    attends = True

    def __init__(self, group: SequenceGroup, *, attn_mlp: MLP, max_length: int | None = None, rngs: nnx.Rngs) -> None:
        dim = check_query(group)
        self.mlp = attn_mlp.build(4 * dim, rngs=rngs)
        self.linear = nnx.Linear(attn_mlp.dim, 1, use_bias=False, rngs=rngs)  # a softmax forgets a bias
        self.dim, self.max_length = dim, max_length

    def __call__(self, sequence: Sequence, query: jax.Array) -> jax.Array:
        x, layout = elements_of(sequence, self.max_length)
        q = layout.spread(x, widened(query, self.dim).astype(x.dtype))
        scores = self.linear(self.mlp(jnp.concatenate([q, x, q - x, q * x], axis=1)))
        return layout.summed(layout.softmax(scores).astype(x.dtype) * x)


@register_encoder("simple_attention")
class SimpleAttention(nnx.Module):
    """Attention by inner products of the elements and a candidate that is as long as they are.

    ::

        out = Σ_l softmax(<q, x_l>)_l * x_l                          over the elements that are there

    >>> from sparrow.models import Inputs
    >>> inputs = Inputs(acts={"item": 4}, sequences={"clicks": 4}, groups={"history": ["item", "clicks"]})
    >>> attention = SimpleAttention(inputs.sequence_group("history"))
    >>> attention(Sequence(jnp.ones((1, 3, 4)), jnp.array([2])), jnp.ones((1, 4)))
    Array([[1., 1., 1., 1.]], dtype=float32)
    """

    attends = True

    def __init__(self, group: SequenceGroup, *, max_length: int | None = None, rngs: nnx.Rngs | None = None) -> None:
        self.dim, self.max_length = group.sequences.dim, max_length
        if group.queries.dim != self.dim:
            raise ValueError(
                f"simple_attention of the group '{group.name}' needs a candidate as long as an element of the history, "
                f"{self.dim}; got {group.queries.dim}"
            )

    def __call__(self, sequence: Sequence, query: jax.Array) -> jax.Array:
        x, layout = elements_of(sequence, self.max_length)
        scores = jnp.einsum("td,td->t", x, layout.spread(x, query.astype(x.dtype)))[:, None]
        return layout.summed(layout.softmax(scores).astype(x.dtype) * x)


@register_encoder("multi_window_din_encoder")
class WindowAttention(nnx.Module):
    """Attention to each of several windows of the history, one after the other, and the candidate itself.

    ::

        a_l   = prelu(linear(MLP([x_l, q * x_l, q])))
        out_w = Σ_{l in window w} a_l * x_l / max(elements in window w, 1)
        out   = [out_1, out_2, ..., q]

    >>> from sparrow.models import Inputs
    >>> inputs = Inputs(acts={"item": 4}, sequences={"clicks": 4}, groups={"history": ["item", "clicks"]})
    >>> options = {"attn_mlp": MLP((8,)), "windows_len": (1, 2), "rngs": nnx.Rngs(0)}
    >>> attention = WindowAttention(inputs.sequence_group("history"), **options)
    >>> attention(Sequence(jnp.ones((2, 3, 4)), jnp.array([3, 0])), jnp.ones((2, 4))).shape
    (2, 12)

    Reference: Zhu et al., Learning Tree-based Deep Model for Recommender Systems, 2018, arXiv 1801.02294.
    """

    attends = True

    def __init__(
        self,
        group: SequenceGroup,
        *,
        attn_mlp: MLP,
        windows_len: tuple[int, ...],
        max_length: int | None = None,
        rngs: nnx.Rngs,
    ) -> None:
        if max_length is not None:
            raise ValueError("multi_window_din_encoder has the length of its windows; remove max_length")
        dim = check_query(group)
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


def check_query(group: SequenceGroup) -> int:
    """Return the length of an element; raise ValueError where a candidate is longer, or missing."""
    dim, query_dim = group.sequences.dim, group.queries.dim
    if not 0 < query_dim <= dim:
        raise ValueError(
            f"attention needs a candidate of 1 to {dim} numbers, as many as an element of the history; got {query_dim}"
        )
    return dim


def widened(query: jax.Array, dim: int) -> jax.Array:
    """Return the candidate ``(batch, query_dim)`` with zeros behind it, ``(batch, dim)``."""
    return jnp.pad(query, ((0, 0), (0, dim - query.shape[1])))


@register_encoder("self_attention_encoder")
class SelfAttention(nnx.Module):
    """Multi-head attention between the elements, and the mean of what they become.

    ::

        q, k, v = x W_q + b_q, x W_k, x W_v + b_v                    split into num_heads heads
        h_l     = Σ_m softmax(<q_l, k_m> / √(dim of a head))_m v_m    over the elements that are there
        out     = Σ_l (h_l W_o + b_o) / max(n, 1)                    n: the example's length

    >>> from sparrow.models import Inputs
    >>> group = Inputs(acts={}, sequences={"clicks": 4}, groups={"history": ["clicks"]}).sequence_group("history")
    >>> attention = SelfAttention(group, multihead_attn_dim=8, num_heads=2, rngs=nnx.Rngs(0))
    >>> attention(Sequence(jnp.ones((2, 3, 4)), jnp.array([3, 0]))).shape
    (2, 8)

    Reference: Vaswani et al., 2017, arXiv 1706.03762.
    """

    attends = False

    def __init__(
        self,
        group: SequenceGroup,
        *,
        multihead_attn_dim: int = 512,
        num_heads: int = 8,
        dropout: float = 0.0,
        max_length: int | None = None,
        rngs: nnx.Rngs,
    ) -> None:
        fields.integer("multihead_attn_dim", multihead_attn_dim)
        fields.integer("num_heads", num_heads)
        fields.number("dropout", dropout, at_least=0, below=1)
        dim, width = group.sequences.dim, multihead_attn_dim
        if width % num_heads:
            raise ValueError(f"multihead_attn_dim must be a multiple of num_heads={num_heads}, got {width}")
        self.query, self.value = (nnx.Linear(dim, width, rngs=rngs) for _ in range(2))
        self.key = nnx.Linear(dim, width, use_bias=False, rngs=rngs)  # a softmax forgets this bias
        self.output = nnx.Linear(width, width, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs if dropout else None)
        self.dim, self.heads, self.max_length = width, num_heads, max_length

    def __call__(self, sequence: Sequence) -> jax.Array:
        x, layout = elements_of(sequence, self.max_length)
        q, k, v = (part.reshape(x.shape[0], self.heads, -1) for part in (self.query(x), self.key(x), self.value(x)))
        mixed = layout.attend(q, k, v, score="softmax", alpha=q.shape[2] ** -0.5, in_any_order=True)
        mixed = self.dropout(self.output(mixed.reshape(x.shape[0], -1)))
        return (layout.summed(mixed.astype(jnp.float32)) / jnp.maximum(layout.history, 1)[:, None]).astype(x.dtype)
