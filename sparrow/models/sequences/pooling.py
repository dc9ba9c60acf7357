"""Sum and mean over a history."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.models.inputs import Sequence
from sparrow.models.sequences.layout import elements_of

Pooling = Literal["sum", "mean"]


class PoolingEncoder(nnx.Module):
    """The sum of the elements, or their mean.

    ::

        sum = Σ_{l < n} x_l             mean = sum / max(n, 1)              n: the example's length

    >>> history = Sequence(jnp.array([[[2.0], [4.0], [9.0]]]), jnp.array([2]))
    >>> PoolingEncoder("mean")(history)
    Array([[3.]], dtype=float32)

    Attributes:
      pooling: "sum" or "mean".
      max_length: the largest number of elements, from the first on; None keeps all.
    """

    def __init__(self, pooling: Pooling = "mean", max_length: int | None = None) -> None:
        if pooling not in ("sum", "mean"):
            raise ValueError(f"pooling must be 'sum' or 'mean', got {pooling!r}")
        self.pooling, self.max_length = pooling, max_length

    def __call__(self, sequence: Sequence) -> jax.Array:
        x, layout = elements_of(sequence, self.max_length)
        total = layout.summed(x.astype(jnp.float32))
        if self.pooling == "mean":
            total = total / jnp.maximum(layout.history, 1)[:, None]
        return total.astype(x.dtype)
