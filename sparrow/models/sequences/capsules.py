"""Capsules: a history becomes a few vectors, one per interest, by dynamic routing."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Sequence
from sparrow.models.retrievers.matching import unit
from sparrow.models.sequences.layout import elements_of
from sparrow.models.sequences.masking import masked_softmax


@dataclasses.dataclass(frozen=True)
class Capsules:
    """Behavior-to-interest routing.

    ::

        e_l  = S x_l                                                    S: (dim, high_dim), learned
        b_lk = routing_logits_stddev * n_lk                             n: normal, the same in every call
        num_iters times, the last one with gradients, e a constant in the others:
            w_lk = softmax over k of routing_logits_scale * b_lk        over the capsules of the example
            u_k  = squash(Σ_l w_lk e_l)                                 over the elements that are there
            b_lk = b_lk + <u_k, e_l / |e_l|>
        squash(z) = (|z|² / (1 + |z|²))^squash_pow * z / |z|

    An example of length n has ``max(1, min(max_k, log2 n))`` capsules, rounded up; the others are zeros.

    Reference: Li et al., Multi-Interest Network with Dynamic Routing, 2019, arXiv 1904.08030.

    Attributes:
      high_dim: the length of an interest.
      max_seq_len: the largest number of elements, from the first on.
      max_k: the largest number of interests.
      num_iters: the number of routing steps.
      routing_logits_scale: the factor of the logits in the softmax.
      routing_logits_stddev: the standard deviation of the first logits.
      squash_pow: the power of the squashing factor.
      const_caps_num: whether every example has ``max_k`` interests.
      routing_init_method: "normal", or "zeros", which leaves all interests alike.
    """

    high_dim: int
    max_seq_len: int
    max_k: int = 5
    num_iters: int = 3
    routing_logits_scale: float = 20.0
    routing_logits_stddev: float = 1.0
    squash_pow: float = 1.0
    const_caps_num: bool = False
    routing_init_method: Literal["normal", "zeros"] = "normal"

    def __post_init__(self) -> None:
        for name in ("high_dim", "max_seq_len", "max_k", "num_iters"):
            fields.integer(f"Capsules.{name}", getattr(self, name))
        for name in ("routing_logits_scale", "routing_logits_stddev", "squash_pow"):
            fields.number(f"Capsules.{name}", getattr(self, name), above=0)

    def build(self, dim: int, *, rngs: nnx.Rngs) -> CapsuleLayer:
        return CapsuleLayer(self, dim, rngs=rngs)

    def first_logits(self) -> jax.Array:
        """Return the logits before the first step, ``(max_seq_len, max_k)``."""
        shape = (self.max_seq_len, self.max_k)
        if self.routing_init_method == "zeros":
            return jnp.zeros(shape)
        return self.routing_logits_stddev * jax.random.normal(jax.random.key(0), shape)


class CapsuleLayer(nnx.Module):
    """The layer that `Capsules` describes.

    >>> capsules = Capsules(high_dim=4, max_seq_len=5, max_k=2).build(3, rngs=nnx.Rngs(0))
    >>> interests, there = capsules(Sequence(jnp.ones((2, 5, 3)), jnp.array([5, 0])))
    >>> interests.shape, there.tolist()
    ((2, 2, 4), [[True, True], [True, False]])
    """

    def __init__(self, capsules: Capsules, dim: int, *, rngs: nnx.Rngs) -> None:
        self.capsules = capsules
        self.bilinear = nnx.Linear(dim, capsules.high_dim, use_bias=False, rngs=rngs)

    def __call__(self, sequence: Sequence, layers: Any = None) -> tuple[jax.Array, jax.Array]:
        """Return the interests, ``(batch, max_k, high_dim)``, and which of them are there, ``(batch, max_k)``.

        ``layers`` are applied to the elements before; None: none.
        """
        capsules = self.capsules
        x, layout = elements_of(sequence, capsules.max_seq_len)
        low = self.bilinear(x if layers is None else layers(x))  # (tokens, high_dim)
        constant = jax.lax.stop_gradient(low)
        direction = unit(constant.astype(jnp.float32)).astype(low.dtype)
        count = jnp.full(layout.history.shape, float(capsules.max_k))
        if not capsules.const_caps_num:
            length = jnp.maximum(layout.history, 1).astype(jnp.float32)
            count = jnp.clip(jnp.log2(length), 1, capsules.max_k)
        there = jnp.arange(capsules.max_k) < count[:, None]
        shape = (-1, capsules.max_k, capsules.high_dim)
        (place,) = layout.of_tokens(x)
        logits = capsules.first_logits().at[place].get(mode="clip")  # (tokens, max_k)
        part = layout.spread(x, there.astype(jnp.float32)) > 0
        for step in range(1, capsules.num_iters + 1):
            weights = masked_softmax(capsules.routing_logits_scale * logits, part)
            last = step == capsules.num_iters
            each = weights.astype(low.dtype)[:, :, None] * (low if last else constant)[:, None]
            total = layout.summed(each.reshape(x.shape[0], -1)).reshape(shape)
            interests = squash(total.astype(jnp.float32), capsules.squash_pow).astype(low.dtype)
            if not last:
                own = layout.spread(x, interests.reshape(interests.shape[0], -1)).reshape(shape)
                logits = logits + jnp.einsum("tkh,th->tk", own, direction).astype(jnp.float32)
        return jnp.where(there[..., None], interests, 0), there


def squash(z: jax.Array, power: float) -> jax.Array:
    """Return ``(|z|² / (1 + |z|²))^power * z / |z|``; zeros stay zeros.

    >>> squash(jnp.array([[3.0, 4.0], [0.0, 0.0]]), 1.0)
    Array([[0.576..., 0.769...],
           [0.       , 0.       ]], dtype=float32)
    """
    squares = jnp.square(z).sum(axis=-1, keepdims=True)
    safe = jnp.where(squares > 0, squares, 1.0)
    return jnp.where(squares > 0, (safe / (1 + safe)) ** power * unit(z), 0.0)
