"""DAT: each tower also reads a vector that imitates what the other tower makes of past matches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.extra_losses import extra_loss
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.norms import unit
from sparrow.models.layers.towers import Tower
from sparrow.models.records import register_model
from sparrow.models.retrievers.matching import Negatives, Similarity, VectorOutput, candidates, check_towers


class AugmentedTower(nnx.Module):
    """The layers of a tower over its group and its augmented vector, side by side."""

    def __init__(
        self, tower: Tower, mlp: MLP, augment: str, inputs: Inputs, dim: int, similarity: Similarity, *, rngs: nnx.Rngs
    ) -> None:
        self.group: Group = inputs.group(tower.input)
        self.augment: Group = inputs.embedded(augment)
        if self.augment.dim != dim:
            raise ValueError(
                f"DAT: the group '{augment}' must have output_dim={dim} numbers, as the vectors that it imitates; "
                f"got {self.augment.dim}"
            )
        self.mlp = mlp.build(self.group.dim + self.augment.dim, rngs=rngs)
        self.output = VectorOutput(mlp.dim, dim, similarity, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        x = jnp.concatenate([self.group.concat(acts, numbers), self.augment.concat(acts, {})], axis=1)
        return self.output(self.mlp(x))


@register_model("dat", is_per_example=True)
class DAT(nnx.Module):
    """Dual augmented two-tower model: towers that meet only at the end learn from each other through two vectors.

    ::

        query = linear(user MLP([group of users, a_u]))               divided by its norm with similarity "cosine"
        item  = linear(item MLP([group of items, a_i]))               the same
        loss/amm_user = amm_u_weight * |a_u / |a_u| - item|²           item: a constant here
        loss/amm_item = amm_i_weight * |a_i / |a_i| - query|²          query: a constant here

    ``a_u`` and ``a_i`` are embeddings of the groups ``user_augment`` and ``item_augment``, usually of the ids of user
    and item, in tables of their own and of dim ``output_dim``. The two losses are added in training: means over the
    examples, whose own item is the one meant.

    >>> inputs = Inputs(acts={"user": 8, "user_id": 4, "item": 8, "item_id": 4}, groups={
    ...     "user": ["user"], "user_augment": ["user_id"], "item": ["item"], "item_augment": ["item_id"]})
    >>> model = DAT(inputs, user_tower=Tower("user", MLP((16,))), item_tower=Tower("item", MLP((16,))),
    ...             user_augment="user_augment", item_augment="item_augment", output_dim=4, rngs=nnx.Rngs(0))
    >>> acts = {name: jnp.ones((2, dim)) for name, dim in inputs.acts.items()}
    >>> {name: array.shape for name, array in model(acts, {}).items()}
    {'query': (2, 4), 'item': (2, 4), 'loss/amm_user': (2,), 'loss/amm_item': (2,)}

    Reference: Yu et al., A Dual Augmented Two-tower Model for Online Large-scale Recommendation, DLP-KDD 2021.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        user_tower: Tower,
        item_tower: Tower,
        user_augment: str,
        item_augment: str,
        output_dim: int,
        similarity: Similarity = "inner_product",
        negatives: Negatives = "in_batch",
        amm_u_weight: float = 0.5,
        amm_i_weight: float = 0.5,
        rngs: nnx.Rngs,
    ) -> None:
        check_towers("DAT", user_tower.input, item_tower.input, similarity, negatives)
        inputs.check("DAT", required=(user_tower.input, item_tower.input, user_augment, item_augment))
        fields.integer("DAT.output_dim", output_dim)
        fields.number("DAT.amm_u_weight", amm_u_weight, at_least=0)
        fields.number("DAT.amm_i_weight", amm_i_weight, at_least=0)
        towers = []
        for name, tower, augment in (
            ("user_tower", user_tower, user_augment),
            ("item_tower", item_tower, item_augment),
        ):
            if tower.mlp is None:
                raise ValueError(f"DAT.{name} needs an mlp; add its layers")
            towers.append(AugmentedTower(tower, tower.mlp, augment, inputs, output_dim, similarity, rngs=rngs))
        self.user_tower, self.item_tower = towers
        self.weights = (amm_u_weight, amm_i_weight)
        self.negatives = negatives
        self.deterministic = False  # nnx.Module.eval sets it: without training there is no loss

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """Return the outputs of `DSSM`; in training the two losses of the augmented vectors, too."""
        query, items = self.query(acts, numbers), self.item(acts, numbers)
        outputs = candidates("DAT", query, items, self.negatives)
        if self.deterministic:
            return outputs
        batch = query.shape[0]
        amm_user = _distance(self.user_tower.augment.concat(acts, {}), items[:batch])
        amm_item = _distance(self.item_tower.augment.concat(acts, {})[:batch], query)
        return {
            **outputs,
            extra_loss("amm_user"): self.weights[0] * amm_user,
            extra_loss("amm_item"): self.weights[1] * amm_item,
        }

    def query(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        return self.user_tower(acts, numbers)

    def item(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        return self.item_tower(acts, numbers)


def _distance(augmented: jax.Array, imitated: jax.Array) -> jax.Array:
    difference = unit(augmented.astype(jnp.float32)) - jax.lax.stop_gradient(imitated)
    return jnp.square(difference).sum(axis=1)
