"""Tokens: the vectors of context, history and candidates that layers of attention read."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Inputs, Sequence, SequenceGroup
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.norms import LayerNorm


class TokenLayers(nnx.Module):
    """Two layers that make a token.

    ::

        h = W x + b
        y = norm(V (h * sigmoid(norm(h))) + c)

    >>> TokenLayers(3, 8, 4, rngs=nnx.Rngs(0))(jnp.ones((2, 5, 3))).shape
    (2, 5, 4)
    """

    def __init__(self, dim: int, hidden_dim: int, output_dim: int, *, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(dim, hidden_dim, rngs=rngs)
        self.gate = LayerNorm(hidden_dim, rngs=rngs)
        self.linear = nnx.Linear(hidden_dim, output_dim, rngs=rngs)
        self.norm = LayerNorm(output_dim, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        h = self.hidden(x)
        return self.norm(self.linear(h * jax.nn.sigmoid(self.gate(h))))


@dataclasses.dataclass(frozen=True)
class Content:
    """How elements of the history and candidates become tokens of one kind.

    Attributes:
      hidden_dim: the hidden units of the layers that make the tokens.
      encoder: "slice" cuts candidates to the width of the history; "pad" adds a learned vector to the history; "mlp"
        has layers for each.
      uih_mlp: the layers of the history, for "mlp".
      target_mlp: the layers of the candidates, for "mlp".
    """

    hidden_dim: fields.Count
    encoder: Literal["slice", "pad", "mlp"] = "slice"
    uih_mlp: MLP | None = None
    target_mlp: MLP | None = None

    def __post_init__(self) -> None:
        fields.check(self)
        if (self.encoder == "mlp") != (self.uih_mlp is not None and self.target_mlp is not None):
            raise ValueError("Content.uih_mlp and target_mlp go with the encoder 'mlp'; give all of them or none")
        for layers in (self.uih_mlp, self.target_mlp):
            if layers is not None and layers.use_bn:
                raise ValueError("Content: use_bn would count the padding of sequences; use use_ln")


class ContentTokens(nnx.Module):
    """The layers that a `Content` describes."""

    def __init__(self, content: Content, dim: int, candidate_dim: int, output_dim: int, *, rngs: nnx.Rngs) -> None:
        least = {"slice": dim, "pad": dim + 1, "mlp": 0}[content.encoder]
        if candidate_dim < least:
            raise ValueError(
                f"Content.encoder '{content.encoder}' needs candidates of at least {least} numbers, as the history has "
                f"{dim}; they have {candidate_dim}"
            )
        self.encoder, self.dim = content.encoder, dim
        self.extra = nnx.data(None)
        self.own, self.target = nnx.data(None), nnx.data(None)
        width = dim
        if content.encoder == "pad":
            self.extra = nnx.Param(0.1 * jax.random.normal(rngs.params(), (candidate_dim - dim,)))
            width = candidate_dim
        if content.uih_mlp is not None and content.target_mlp is not None:
            if content.uih_mlp.dim != content.target_mlp.dim:
                raise ValueError(
                    f"Content.uih_mlp and target_mlp must end in one width, got {content.uih_mlp.dim} and "
                    f"{content.target_mlp.dim}"
                )
            self.own = content.uih_mlp.build(dim, rngs=rngs)
            self.target = content.target_mlp.build(candidate_dim, rngs=rngs)
            width = content.uih_mlp.dim
        self.layers = TokenLayers(width, content.hidden_dim, output_dim, rngs=rngs)

    def history(self, x: jax.Array) -> jax.Array:
        if self.own is not None:
            x = self.own(x)
        if self.extra is not None:
            extra = jnp.broadcast_to(self.extra[...].astype(x.dtype), (*x.shape[:-1], self.extra.shape[0]))
            x = jnp.concatenate([x, extra], axis=-1)
        return self.layers(x)

    def candidates(self, x: jax.Array) -> jax.Array:
        if self.target is not None:
            x = self.target(x)
        return self.layers(x[..., : self.dim] if self.encoder == "slice" else x)


@dataclasses.dataclass(frozen=True)
class Actions:
    """The actions of an element, as bits of one number: each has a vector, which counts where its bit is set.

    Attributes:
      embedding_dim: the length of the vectors.
      bitmasks: the bit of each action.
      hidden_dim: the hidden units of the layers that make the tokens.
      watchtime_thresholds: times from which on an element has a further action, in the group of watch times.
      watchtime_bitmasks: the bits of these actions.
    """

    embedding_dim: fields.Count
    bitmasks: tuple[int, ...]
    hidden_dim: fields.Count
    watchtime_thresholds: tuple[float, ...] = ()
    watchtime_bitmasks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        fields.check(self)
        for bits in (*self.bitmasks, *self.watchtime_bitmasks):
            fields.integer("Actions.bitmasks", bits, at_most=2**31 - 1)
        if not self.bitmasks:
            raise ValueError("Actions.bitmasks must be a list of at least one bit, got none")
        if len(self.watchtime_thresholds) != len(self.watchtime_bitmasks):
            raise ValueError(
                "Actions.watchtime_thresholds and watchtime_bitmasks must have one length, got "
                f"{len(self.watchtime_thresholds)} and {len(self.watchtime_bitmasks)}"
            )


class ActionTokens(nnx.Module):
    """The tokens of actions; a candidate has one of its own, learned.

    ::

        token = layers([e_1 if bit 1 is set else 0, e_2 if bit 2 is set else 0, ...])
    """

    def __init__(self, actions: Actions, output_dim: int, *, rngs: nnx.Rngs) -> None:
        self.actions = actions
        count = len(actions.bitmasks) + len(actions.watchtime_bitmasks)
        self.vectors = nnx.Param(0.1 * jax.random.normal(rngs.params(), (count, actions.embedding_dim)))
        width = count * actions.embedding_dim
        self.of_candidates = nnx.Param(0.1 * jax.random.normal(rngs.params(), (width,)))
        self.layers = TokenLayers(width, actions.hidden_dim, output_dim, rngs=rngs)

    def history(self, actions: jax.Array, watched: jax.Array | None) -> jax.Array:
        """Return the tokens of actions and watch times, both of one shape."""
        bits = actions.astype(jnp.int32)
        for threshold, bit in zip(self.actions.watchtime_thresholds, self.actions.watchtime_bitmasks, strict=True):
            if watched is not None:
                bits = bits | jnp.where(watched >= threshold, bit, 0)
        masks = jnp.array([*self.actions.bitmasks, *self.actions.watchtime_bitmasks], jnp.int32)
        has_bit = (bits[..., None] & masks) != 0  # (..., actions)
        x = jnp.where(has_bit[..., None], self.vectors[...], 0)
        return self.layers(x.reshape(*bits.shape, -1))

    def candidates(self) -> jax.Array:
        """Return the token of every candidate, ``(dim,)``."""
        return self.layers(self.of_candidates[...])


class ContextTokens(nnx.Module):
    """The features of the request: one token for each, or one for all of them."""

    def __init__(self, model: str, inputs: Inputs, output_dim: int, *, as_one: bool, rngs: nnx.Rngs) -> None:
        self.group = inputs.group("contextual") if "contextual" in inputs.groups else None
        dims = () if self.group is None else (self.group.dim,) if as_one else self.group.dims
        if len(set(dims)) > 1:
            raise ValueError(
                f"{model}: features of the group 'contextual' must have one width, got {sorted(set(dims))}; make them "
                "alike, or make one token of all of them"
            )
        self.layers = nnx.List([nnx.Linear(dim, output_dim, rngs=rngs) for dim in dims])
        self.output_dim = output_dim

    def __call__(self, acts: Arrays, numbers: Arrays, like: jax.Array, dtype: Any) -> jax.Array:
        """Return ``(batch, tokens, dim)``; the first axis of ``like`` is the batch."""
        if self.group is None:
            return jnp.zeros((like.shape[0], 0, self.output_dim), dtype)
        parts = jnp.split(self.group.concat(acts, numbers), len(self.layers), axis=1)
        tokens = [layer(part) for layer, part in zip(self.layers, parts, strict=True)]
        return jnp.stack(tokens, axis=1).astype(dtype)


def history_group(model: str, inputs: Inputs, group: str, dim: int | None = None) -> SequenceGroup:
    """Return a group that must hold sequences alone; with ``dim``, of that number of values per element."""
    found = inputs.sequence_group(group)
    if found.queries.names:
        single = found.queries.names[0]
        raise ValueError(f"{model}: the group '{group}' holds sequences alone; move '{single}' to another group")
    if dim is not None and found.sequences.dim != dim:
        raise ValueError(f"{model}: the group '{group}' must hold {dim} number, got {found.sequences.dim}")
    return found


def single_number(group: SequenceGroup, acts: Arrays, numbers: Arrays) -> Sequence:
    """Return the sequence of a group of one, a number of each element; float32, whatever the dtype of activations."""
    name = group.sequences.names[0]
    held = numbers[name] if name in numbers else acts[name]
    made: Sequence = jax.tree.map(lambda x: x.astype(jnp.float32) if x.ndim > 1 else x, held)
    return made
