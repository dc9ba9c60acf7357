"""Two towers, one vector for the user and one for the item: what such models share, DSSM and DAT."""

from __future__ import annotations

from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.functional import extra_loss
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import Activation, identity
from sparrow.models.layers.norms import unit
from sparrow.models.layers.towers import GroupTower, Tower
from sparrow.models.records import register_model

Similarity = Literal["inner_product", "cosine"]
Negatives = Literal["in_batch", "sampled"]


class VectorOutput(nnx.Module):
    """A linear layer where ``output_dim`` is given; with similarity "cosine" the vectors then have norm 1. float32.

    >>> VectorOutput(3, 2, "cosine", rngs=nnx.Rngs(0))(jnp.ones((4, 3), jnp.bfloat16)).dtype
    dtype('float32')
    """

    def __init__(
        self, dim: int, output_dim: int | None, similarity: Similarity, *, use_bias: bool = True, rngs: nnx.Rngs
    ) -> None:
        linear = identity if output_dim is None else nnx.Linear(dim, output_dim, use_bias=use_bias, rngs=rngs)
        self.linear: Activation = linear
        self.similarity = similarity

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.linear(x).astype(jnp.float32)
        return unit(x) if self.similarity == "cosine" else x


class TwoTowers(nnx.Module):
    """A model of two towers, one vector each for the user and the item; a subclass makes the user's, and `query`."""

    def _make_item_tower(
        self,
        inputs: Inputs,
        item_tower: Tower,
        user_dim: int,
        output_dim: int | None,
        similarity: Similarity,
        negatives: Negatives,
        *,
        user_bias: bool = True,
        rngs: nnx.Rngs,
    ) -> None:
        """Make the item's tower, and the last layers of both; ``user_dim`` is the width that the user's ends in."""
        model = type(self).__name__
        self.item_tower: Any = GroupTower(item_tower, inputs, rngs=rngs)
        width = self.item_tower.dim
        if output_dim is not None:
            fields.integer(f"{model}.output_dim", output_dim)
        elif user_dim != width:
            raise ValueError(f"{model} without output_dim needs towers of one width, got {user_dim} and {width}")
        self.user_output = VectorOutput(user_dim, output_dim, similarity, use_bias=user_bias, rngs=rngs)
        self.item_output = VectorOutput(width, output_dim, similarity, rngs=rngs)
        self.negatives: Negatives = negatives

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """``{"query": (batch, dim), "item": (items, dim)}``, and "negatives" where they are sampled."""
        return candidates(type(self).__name__, self.query(acts, numbers), self.item(acts, numbers), self.negatives)

    def query(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        """Return the users' vectors alone, ``(batch, dim)``, for an online service. float32."""
        raise NotImplementedError

    def item(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        """Return the items' vectors alone, ``(items, dim)``, for an index. float32."""
        vectors: jax.Array = self.item_output(self.item_tower(acts, numbers))
        return vectors


def check_towers(model: str, user: str, item: str, similarity: Similarity, negatives: Negatives) -> None:
    """Raise ValueError unless the towers read different groups and the options are known."""
    fields.choice(f"{model}.similarity", similarity, get_args(Similarity))
    fields.choice(f"{model}.negatives", negatives, get_args(Negatives))
    if user == item:
        raise ValueError(f"{model} needs two groups, but both towers read the group '{user}'")


def candidates(model: str, query: jax.Array, items: jax.Array, negatives: Negatives) -> dict[str, jax.Array]:
    """Return the outputs that the losses read: query and item, and negatives where they are sampled.

    Args:
      model: its name, for errors.
      query: ``(batch, dim)``.
      items: ``(items, dim)``, the ``batch`` items chosen first.
      negatives: the source of the negatives.

    >>> made = candidates("DSSM", jnp.ones((2, 3)), jnp.ones((5, 3)), "sampled")
    >>> {name: array.shape for name, array in made.items()}
    {'query': (2, 3), 'item': (2, 3), 'negatives': (3, 3)}
    """
    batch = query.shape[0]  # not len: an exported model has no number here
    if negatives == "in_batch" or items.shape[0] == batch:  # none are drawn to predict
        return {"query": query, "item": items}
    if items.shape[0] < batch:
        raise ValueError(
            f"{model} with sampled negatives needs item features of more rows than the {batch} users: "
            f"the items chosen, then the negatives; got {items.shape[0]}"
        )
    return {"query": query, "item": items[:batch], "negatives": items[batch:]}


@register_model("dssm", is_per_example=True)
class DSSM(TwoTowers):
    """Two towers: candidates for a user are the items of the largest inner product of two vectors.

    ::

        query = linear(user tower(its group))                       divided by its norm with similarity "cosine"
        item  = linear(item tower(its group))                       the same

    Outputs for the losses, with ``B`` users in the batch:

    ============  ==========================  ==============================================================
    negatives     the item features hold      the outputs go to
    ============  ==========================  ==============================================================
    "in_batch"    B items, or more            ``losses.in_batch_softmax(query, item)``
    "sampled"     B items, then N negatives   ``losses.sampled_softmax(query, item, negatives)``
    ============  ==========================  ==============================================================

    The temperature belongs to the loss.

    >>> from sparrow.models.layers.mlp import MLP
    >>> inputs = Inputs(acts={"user": 8, "item": 8}, groups={"user": ["user"], "item": ["item"]})
    >>> towers = {"user_tower": Tower("user", MLP((16,))), "item_tower": Tower("item", MLP((16,)))}
    >>> model = DSSM(inputs, **towers, output_dim=4, negatives="sampled", rngs=nnx.Rngs(0))
    >>> outputs = model({"user": jnp.ones((2, 8)), "item": jnp.ones((2 + 5, 8))}, {})
    >>> {name: array.shape for name, array in outputs.items()}
    {'query': (2, 4), 'item': (2, 4), 'negatives': (5, 4)}

    Reference: Huang et al., Learning Deep Structured Semantic Models, CIKM 2013.

    Attributes:
      output_dim: the length of the vectors; None leaves the linear layers out, and the towers' widths must agree.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        user_tower: Tower,
        item_tower: Tower,
        output_dim: int | None = None,
        similarity: Similarity = "inner_product",
        negatives: Negatives = "in_batch",
        rngs: nnx.Rngs,
    ) -> None:
        check_towers("DSSM", user_tower.input, item_tower.input, similarity, negatives)
        inputs.check("DSSM", required=(user_tower.input, item_tower.input))
        self.user_tower = GroupTower(user_tower, inputs, rngs=rngs)
        width = self.user_tower.dim
        self._make_item_tower(inputs, item_tower, width, output_dim, similarity, negatives, rngs=rngs)

    def query(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        return self.user_output(self.user_tower(acts, numbers))


@register_model("dssm_v2", is_per_example=True)
class DSSMv2(DSSM):
    """`DSSM` under the name of TorchEasyRec's second version: towers share the tables that features name, as here."""


class AugmentedTower(nnx.Module):
    """The layers of a tower over its group and its augmented vector, side by side."""

    def __init__(
        self, tower: Tower, augment: str, inputs: Inputs, dim: int, similarity: Similarity, *, rngs: nnx.Rngs
    ) -> None:
        if tower.mlp is None:
            raise ValueError(f"DAT: the tower over the group '{tower.input}' needs an mlp; add its layers")
        self.group: Group = inputs.group(tower.input)
        self.augment: Group = inputs.embedded(augment)
        if self.augment.dim != dim:
            raise ValueError(
                f"DAT: the group '{augment}' must have output_dim={dim} numbers, as the vectors that it imitates; "
                f"got {self.augment.dim}"
            )
        self.mlp = tower.mlp.build(self.group.dim + self.augment.dim, rngs=rngs)
        self.output = VectorOutput(tower.mlp.dim, dim, similarity, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        x = jnp.concatenate([self.group.concat(acts, numbers), self.augment.concat(acts, {})], axis=1)
        return self.output(self.mlp(x))


@register_model("dat", is_per_example=True)
class DAT(TwoTowers):
    """Dual augmented two-tower model: towers that meet only at the end learn from each other through two vectors.

    ::

        query = linear(user MLP([group of users, a_u]))               divided by its norm with similarity "cosine"
        item  = linear(item MLP([group of items, a_i]))               the same
        loss/amm_user = amm_u_weight * |a_u / |a_u| - item|²           item: a constant here
        loss/amm_item = amm_i_weight * |a_i / |a_i| - query|²          query: a constant here

    ``a_u`` and ``a_i`` are embeddings of the groups ``user_augment`` and ``item_augment``, usually of the ids of user
    and item, in tables of their own and of dim ``output_dim``. The two losses are added in training: means over the
    examples, whose own item is the one meant.

    >>> from sparrow.models.layers.mlp import MLP
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
        self.user_tower, self.item_tower = (
            AugmentedTower(tower, augment, inputs, output_dim, similarity, rngs=rngs)
            for tower, augment in ((user_tower, user_augment), (item_tower, item_augment))
        )
        self.weights = (amm_u_weight, amm_i_weight)
        self.negatives = negatives
        self.deterministic = False  # nnx.Module.eval sets it: without training there is no loss

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """Return the outputs of `DSSM`; in training the two losses of the augmented vectors, too."""
        outputs = super().__call__(acts, numbers)
        if self.deterministic:
            return outputs
        query, item = outputs["query"], outputs["item"][: outputs["query"].shape[0]]
        for name, weight, tower, other in (
            ("amm_user", self.weights[0], self.user_tower, item),
            ("amm_item", self.weights[1], self.item_tower, query),
        ):
            augmented = unit(tower.augment.concat(acts, {})[: other.shape[0]].astype(jnp.float32))
            squares = jnp.square(augmented - jax.lax.stop_gradient(other)).sum(axis=1)
            outputs[extra_loss(name)] = weight * squares
        return outputs

    def query(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        return self.user_tower(acts, numbers)

    def item(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        vectors: jax.Array = self.item_tower(acts, numbers)
        return vectors
