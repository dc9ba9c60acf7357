"""MIND: a user has several vectors, one for each interest in the history."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Group, Inputs, SequenceGroup
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.towers import GroupTower, Tower
from sparrow.models.records import register_model
from sparrow.models.retrievers.matching import (
    Negatives,
    Similarity,
    VectorOutput,
    candidates,
    check_towers,
    check_widths,
)
from sparrow.models.sequences.capsules import Capsules
from sparrow.models.sequences.masking import masked_softmax


@dataclasses.dataclass(frozen=True)
class MINDUserTower:
    """The layers of `MIND` over the user.

    Attributes:
      input: the group of the user's single features.
      history_input: the group of the history.
      user_mlp: the layers over the user's features; the last one is linear.
      capsule_config: the routing from the history to interests.
      concat_mlp: the layers over the user and one interest.
      hist_seq_mlp: layers over each element of the history, without bias, the last one linear; None for none.
    """

    input: str
    history_input: str
    user_mlp: MLP
    capsule_config: Capsules
    concat_mlp: MLP
    hist_seq_mlp: MLP | None = None


@register_model("mind")
class MIND(nnx.Module):
    """Multi-interest network with dynamic routing: the nearest items of each interest are the candidates.

    ::

        user        = user MLP(its group)
        capsule_k   = routing of history MLP(history)                    see `Capsules`
        interest_k  = linear(concat MLP([user, capsule_k]))               divided by its norm with similarity "cosine"
        item        = linear(item tower(its group))                      the same
        query       = Σ_k softmax(simi_pow * <interest_k, item>)_k * interest_k          item: the one chosen

    The outputs are those of `DSSM`, and "interests", ``(batch, max_k, dim)``, which an online service looks up: the
    query is of training and evaluation, where the item is known. Interests that a short history does not have are
    zeros. Without output_dim the linear layers are left out, and the widths must agree.

    >>> inputs = Inputs(acts={"user": 8, "item": 8}, sequences={"clicks": 4},
    ...                 groups={"user": ["user"], "history": ["clicks"], "item": ["item"]})
    >>> tower = MINDUserTower("user", "history", MLP((8,)), Capsules(high_dim=4, max_seq_len=5, max_k=2), MLP((8,)))
    >>> model = MIND(inputs, user_tower=tower, item_tower=Tower("item", MLP((8,))), output_dim=4, rngs=nnx.Rngs(0))
    >>> from sparrow.models.inputs import Sequence
    >>> acts = {"user": jnp.ones((2, 8)), "item": jnp.ones((2, 8)),
    ...         "clicks": Sequence(jnp.ones((2, 5, 4)), jnp.array([5, 0]))}
    >>> {name: array.shape for name, array in model(acts, {}).items()}
    {'query': (2, 4), 'item': (2, 4), 'interests': (2, 2, 4)}

    Reference: Li et al., 2019, arXiv 1904.08030.
    """

    query_reads_item = True
    """The weights of a user's interests depend on the item."""

    def __init__(
        self,
        inputs: Inputs,
        *,
        user_tower: MINDUserTower,
        item_tower: Tower,
        output_dim: int | None = None,
        simi_pow: float = 10.0,
        similarity: Similarity = "cosine",
        negatives: Negatives = "in_batch",
        rngs: nnx.Rngs,
    ) -> None:
        check_towers("MIND", user_tower.input, item_tower.input, similarity, negatives)
        inputs.check("MIND", required=(user_tower.input, user_tower.history_input, item_tower.input))
        fields.number("MIND.simi_pow", simi_pow, at_least=0)
        self.user: Group = inputs.group(user_tower.input)
        self.history: SequenceGroup = inputs.sequence_group(user_tower.history_input)
        if self.history.queries.names:
            raise ValueError(
                f"MIND: the group '{user_tower.history_input}' holds the history alone, and "
                f"'{self.history.queries.names[0]}' is no sequence; move it to '{user_tower.input}'"
            )
        capsules, dim = user_tower.capsule_config, self.history.sequences.dim
        self.user_mlp = user_tower.user_mlp.build(self.user.dim, linear_end=True, rngs=rngs)
        self.history_mlp = nnx.data(None)
        if user_tower.hist_seq_mlp is not None:
            layers = dataclasses.replace(user_tower.hist_seq_mlp, bias=False)
            self.history_mlp, dim = layers.build(dim, linear_end=True, rngs=rngs), layers.dim
        self.capsules = capsules.build(dim, rngs=rngs)
        self.concat_mlp = user_tower.concat_mlp.build(user_tower.user_mlp.dim + capsules.high_dim, rngs=rngs)
        self.item_tower = GroupTower(item_tower, inputs, rngs=rngs)
        check_widths("MIND", (user_tower.concat_mlp.dim, self.item_tower.dim), output_dim)
        self.user_output = VectorOutput(user_tower.concat_mlp.dim, output_dim, similarity, use_bias=False, rngs=rngs)
        self.item_output = VectorOutput(self.item_tower.dim, output_dim, similarity, rngs=rngs)
        self.simi_pow, self.negatives = simi_pow, negatives

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """``{"query": (batch, dim), "item": (items, dim), "interests": (batch, max_k, dim)}``, and "negatives"."""
        interests, there = self.interests(acts, numbers)
        items = self.item(acts, numbers)
        chosen = items[: interests.shape[0]]
        scores = (interests * chosen[:, None]).sum(axis=2)
        weights = masked_softmax(self.simi_pow * scores, there)
        query = (weights[..., None] * interests).sum(axis=1)
        return {**candidates("MIND", query, items, self.negatives), "interests": interests}

    def interests(self, acts: Arrays, numbers: Arrays) -> tuple[jax.Array, jax.Array]:
        """Return the users' vectors, ``(batch, max_k, dim)``, float32, and which of them are there."""
        capsules, there = self.capsules(self.history.sequence(acts, numbers), self.history_mlp)
        user = self.user_mlp(self.user.concat(acts, numbers))
        both = jnp.concatenate(
            [jnp.broadcast_to(user[:, None], (*capsules.shape[:2], user.shape[1])), capsules], axis=2
        )
        return jnp.where(there[..., None], self.user_output(self.concat_mlp(both)), 0), there

    def item(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        return self.item_output(self.item_tower(acts, numbers))
