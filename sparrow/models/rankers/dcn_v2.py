"""DCN V2: a cross network with matrices, beside a deep one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.towers import Logits
from sparrow.models.rankers.crossing import CrossV2
from sparrow.models.records import register_model


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
        self.backbone = nnx.data(None) if backbone is None else backbone.build(self.group.dim, rngs=rngs)
        self.cross = CrossV2(backbone.dim if backbone else self.group.dim, cross_num, low_rank, rngs=rngs)
        self.deep = nnx.data(None) if deep is None else deep.build(self.group.dim, rngs=rngs)
        self.logits = Logits(self.cross.dim + (deep.dim if deep else 0), final, num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        x = self.group.concat(acts, numbers)
        parts = [self.cross(x if self.backbone is None else self.backbone(x))]
        if self.deep is not None:
            parts.append(self.deep(x))
        return {"logits": self.logits(jnp.concatenate(parts, axis=1))}
