"""DCN and DCN V2: a cross network, which multiplies features layer by layer, and a deep one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP, optional_layers
from sparrow.models.layers.towers import Logits
from sparrow.models.records import register_model


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

    def __call__(self, x: jax.Array) -> jax.Array:
        y = x
        for index, up in enumerate(self.up):
            y = x * up(self.down[index](y) if self.down else y) + y
        return y


@register_model("dcn_v1", is_per_example=True)
class DCNv1(nnx.Module):
    """Deep & Cross Network: products of features of every order up to ``cross_num + 1``, and a deep network.

    ::

        x      = features of the only group, side by side
        cross  = cross_num layers x_{l+1} = x_0 * <x_l, w_l> + b_l + x_l
        logits = linear(final MLP([cross, deep MLP(x)]))

    >>> inputs = Inputs(acts={"user": 8, "item": 8}, groups={"all": ["user", "item"]})
    >>> model = DCNv1(inputs, deep=MLP((16,)), final=MLP((8,)), rngs=nnx.Rngs(0))
    >>> model({"user": jnp.ones((4, 8)), "item": jnp.ones((4, 8))}, {})["logits"].shape
    (4,)

    Reference: Wang et al., 2017, arXiv 1708.05123.
    """

    def __init__(
        self, inputs: Inputs, *, deep: MLP, final: MLP, cross_num: int = 3, num_classes: int = 1, rngs: nnx.Rngs
    ) -> None:
        self.group: Group = inputs.single("DCNv1")
        self.cross = Cross(self.group.dim, cross_num, rngs=rngs)
        self.deep = deep.build(self.group.dim, rngs=rngs)
        self.logits = Logits(self.group.dim + deep.dim, final, num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        x = self.group.concat(acts, numbers)
        return {"logits": self.logits(self.cross(x), self.deep(x))}


@register_model("dcn_v2", is_per_example=True)
class DCNv2(nnx.Module):
    """Deep & Cross Network with a matrix per cross layer, beside a deep network or below it.

    ::

        x      = features of the only group, side by side
        x_0    = backbone MLP(x)                                  x itself without backbone
        cross  = cross_num layers x_{l+1} = x_0 * (V_l (U_l x_l) + b_l) + x_l
        logits = linear(final MLP([cross, deep MLP(x)]))          without deep: of cross alone

    >>> inputs = Inputs(acts={"user": 8, "item": 8}, groups={"all": ["user", "item"]})
    >>> model = DCNv2(inputs, final=MLP((8,)), deep=MLP((16,)), low_rank=4, rngs=nnx.Rngs(0))
    >>> model({"user": jnp.ones((4, 8)), "item": jnp.ones((4, 8))}, {})["logits"].shape
    (4,)

    Reference: Wang et al., 2021, arXiv 2008.13535.

    Attributes:
      low_rank: the rank of the cross layers' matrices; None for full matrices.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        final: MLP,
        backbone: MLP | None = None,
        deep: MLP | None = None,
        cross_num: int = 3,
        low_rank: int | None = 32,
        num_classes: int = 1,
        rngs: nnx.Rngs,
    ) -> None:
        self.group: Group = inputs.single("DCNv2")
        self.backbone, width = optional_layers(backbone, self.group.dim, rngs=rngs)
        self.cross = CrossV2(width, cross_num, low_rank, rngs=rngs)
        self.deep = nnx.data(None) if deep is None else deep.build(self.group.dim, rngs=rngs)
        self.logits = Logits(width + (deep.dim if deep else 0), final, num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        x = self.group.concat(acts, numbers)
        cross = self.cross(self.backbone(x))
        return {"logits": self.logits(cross) if self.deep is None else self.logits(cross, self.deep(x))}
