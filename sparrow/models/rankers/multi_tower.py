"""MultiTower: one network per group of features, and one over all of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Inputs
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.towers import GroupTower, Logits, Tower
from sparrow.models.records import register_model


@register_model("multi_tower", is_per_example=True)
class MultiTower(nnx.Module):
    """Each group of features has its own layers; their outputs are concatenated.

    ::

        logits = linear(final MLP([tower_1(group_1), tower_2(group_2), ...]))

    >>> inputs = Inputs(acts={"user": 8, "item": 8}, numbers={"age": 1},
    ...                 groups={"who": ["user", "age"], "what": ["item"]})
    >>> towers = (Tower("who", MLP((16, 8))), Tower("what", MLP((8,))))
    >>> model = MultiTower(inputs, towers=towers, final=MLP((8,)), rngs=nnx.Rngs(0))
    >>> model({"user": jnp.ones((4, 8)), "item": jnp.ones((4, 8))}, {"age": jnp.ones((4, 1))})["logits"].shape
    (4,)
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        towers: tuple[Tower, ...],
        final: MLP | None = None,
        num_classes: int = 1,
        rngs: nnx.Rngs,
    ) -> None:
        groups = [tower.input for tower in towers]
        if not groups or len(set(groups)) < len(groups):
            raise ValueError(f"MultiTower.towers must be at least one tower, each over its own group, got {groups}")
        inputs.check("MultiTower", required=groups)
        fields.integer("MultiTower: num_classes", num_classes)
        self.towers = nnx.List([GroupTower(tower, inputs, rngs=rngs) for tower in towers])
        self.logits = Logits(sum(tower.dim for tower in self.towers), final, num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        return {"logits": self.logits(jnp.concatenate([tower(acts, numbers) for tower in self.towers], axis=1))}
