"""Distances in time, in buckets that grow with the distance."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

TimeBucket = Literal["sqrt", "log"]


def time_buckets(distances: jax.Array, function: TimeBucket, unit: float, buckets: int) -> jax.Array:
    """Return the bucket of each distance: the integer part of √(d / unit) or log(max(d / unit, 1)), at most the last.

    A distance that is negative counts as 0.

    >>> time_buckets(jnp.array([-5.0, 59.0, 60.0, 240.0, 9e9]), "sqrt", 60.0, 4).tolist()
    [0, 0, 1, 2, 3]
    """
    units = jnp.maximum(distances.astype(jnp.float32), 0) / unit
    scaled = jnp.sqrt(units) if function == "sqrt" else jnp.log(jnp.maximum(units, 1))
    return jnp.clip(scaled, 0, buckets - 1).astype(jnp.int32)
