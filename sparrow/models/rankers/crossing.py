"""Cross networks: each layer multiplies its input by the features themselves, one order of interaction higher."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields


class Cross(nnx.Module):
    """The cross network of DCN: one vector of weights per layer.

    ::

        x_{l+1} = x_0 * <x_l, w_l> + b_l + x_l

    >>> Cross(3, 2, rngs=nnx.Rngs(0))(jnp.ones((4, 3))).shape
    (4, 3)

    Reference: Wang et al., Deep & Cross Network for Ad Click Predictions, 2017, arXiv 1708.05123.
    """

    def __init__(self, dim: int, layers: int, *, rngs: nnx.Rngs) -> None:
        fields.integer("cross_num", layers)
        self.weights = nnx.List([nnx.Linear(dim, 1, use_bias=False, rngs=rngs) for _ in range(layers)])
        self.biases = nnx.List([nnx.Param(jnp.zeros(dim)) for _ in range(layers)])
        self.dim = dim

    def __call__(self, x: jax.Array) -> jax.Array:
        y = x
        for weight, bias in zip(self.weights, self.biases, strict=True):
            y = x * weight(y) + bias[...].astype(x.dtype) + y
        return y


class CrossV2(nnx.Module):
    """The cross network of DCN V2: one matrix per layer, of low rank or full.

    ::

        x_{l+1} = x_0 * (V_l (U_l x_l) + b_l) + x_l               rank low_rank
        x_{l+1} = x_0 * (W_l x_l + b_l) + x_l                     low_rank None

    >>> CrossV2(3, 2, low_rank=2, rngs=nnx.Rngs(0))(jnp.ones((4, 3))).shape
    (4, 3)

    Reference: Wang et al., DCN V2, 2021, arXiv 2008.13535, equations 1 and 2.
    """

    def __init__(self, dim: int, layers: int, low_rank: int | None, *, rngs: nnx.Rngs) -> None:
        fields.integer("cross_num", layers)
        self.down: nnx.List[nnx.Linear] = nnx.List([])
        if low_rank is not None:
            fields.integer("low_rank", low_rank)
            self.down = nnx.List([nnx.Linear(dim, low_rank, use_bias=False, rngs=rngs) for _ in range(layers)])
        self.up = nnx.List([nnx.Linear(low_rank or dim, dim, rngs=rngs) for _ in range(layers)])
        self.dim = dim

    def __call__(self, x: jax.Array) -> jax.Array:
        y = x
        for index, up in enumerate(self.up):
            y = x * up(self.down[index](y) if self.down else y) + y
        return y
