"""The settings and the arrays of an attention."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

Score = Literal["silu", "softmax"]
TimeBucket = Literal["sqrt", "log"]
EVERYTHING = 2**28
"""A distance that no sequence has."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """The static part of an attention: arguments of `sparrow.kernels.jagged_attention`, which has the equations.

    Only the padded reference reads ``max_length``.
    """

    score: Score
    alpha: float
    scale: float
    max_length: int
    max_distance: int = EVERYTHING
    sla_k1: int = 0
    sla_k2: int = 0
    time_bucket_fn: TimeBucket = "sqrt"
    time_unit: float = 1.0

    @property
    def is_semi_local(self) -> bool:
        """Whether sla_k1 and sla_k2 decide who sees whom, instead of ``max_distance``."""
        return bool(self.sla_k1 or self.sla_k2)


class Arrays(NamedTuple):
    """The arrays of an attention.

    They are arguments of `sparrow.kernels.jagged_attention`: offsets, contexts and candidates in int32; position (its
    ``position_bias``), time (its ``time_bias``) and times in float32.
    """

    q: jax.Array
    k: jax.Array
    v: jax.Array
    offsets: jax.Array
    contexts: jax.Array | None = None
    candidates: jax.Array | None = None
    position: jax.Array | None = None
    time: jax.Array | None = None
    times: jax.Array | None = None


class Past(NamedTuple):
    """Tokens before an attention's own, each sequence from place 0 on: context and history, no candidates.

    Attributes:
      k: (sequences, places, heads, dim).
      v: (sequences, places, heads, width).
      lengths: (sequences,) int32, how many of the places count.
      times: (sequences, places) float32; None: times are not read.
    """

    k: jax.Array
    v: jax.Array
    lengths: jax.Array
    times: jax.Array | None = None


Integers = tuple[jax.Array, jax.Array | None, jax.Array | None]
"""Offsets, contexts and candidates of `Arrays`."""


class Gate(NamedTuple):
    """The arrays of `sparrow.kernels.gated_attention` besides those of its attention; ``projected`` is x kernel."""

    projected: jax.Array | None
    shift: jax.Array
    scale: jax.Array
    bias: jax.Array
    epsilon: float


class Gradients(NamedTuple):
    """The gradients of `Arrays`, where they have any."""

    q: jax.Array
    k: jax.Array
    v: jax.Array
    position: jax.Array | None
    time: jax.Array | None


def time_buckets(distances: jax.Array, function: TimeBucket, unit: float, buckets: int) -> jax.Array:
    """Return the bucket of each distance: the integer part of √(d / unit) or log(max(d / unit, 1)), at most the last.

    A distance that is negative counts as 0.

    >>> time_buckets(jnp.array([-5.0, 59.0, 60.0, 240.0, 9e9]), "sqrt", 60.0, 4).tolist()
    [0, 0, 1, 2, 3]
    """
    units = jnp.maximum(distances.astype(jnp.float32), 0) / unit
    scaled = jnp.sqrt(units) if function == "sqrt" else jnp.log(jnp.maximum(units, 1))
    return jnp.clip(scaled, 0, buckets - 1).astype(jnp.int32)
