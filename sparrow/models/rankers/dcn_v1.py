"""DCN: a cross network beside a deep one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.towers import Logits
from sparrow.models.rankers.crossing import Cross
from sparrow.models.records import register_model


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
        return {"logits": self.logits(jnp.concatenate([self.cross(x), self.deep(x)], axis=1))}
