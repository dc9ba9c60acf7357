"""Parts of models that match users with items: vectors of one length, and the candidates of a batch."""

from __future__ import annotations

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Inputs
from sparrow.models.layers.norms import unit
from sparrow.models.layers.towers import GroupTower, Tower
from sparrow.registry import nearest

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
        self.linear = nnx.data(None)
        if output_dim is not None:
            self.linear = nnx.Linear(dim, output_dim, use_bias=use_bias, rngs=rngs)
        self.similarity = similarity

    def __call__(self, x: jax.Array) -> jax.Array:
        x = (x if self.linear is None else self.linear(x)).astype(jnp.float32)
        return unit(x) if self.similarity == "cosine" else x


class TwoTowers(nnx.Module):
    """A model of two towers, one vector each for the user and the item; a subclass makes the user's, and `query`.

    Attributes:
      item_tower: the layers over the item's group.
      user_output: the last layer of the users.
      item_output: the last layer of the items.
      negatives: where the negatives of the losses come from.
    """

    def _make_item_tower(
        self,
        inputs: Inputs,
        item_tower: Tower,
        user_dim: int,
        output_dim: int | None,
        similarity: Similarity,
        negatives: Negatives,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        """Make the item's tower, and the last layers of both; ``user_dim`` is the width that the user's ends in."""
        self.item_tower = GroupTower(item_tower, inputs, rngs=rngs)
        dims = user_dim, self.item_tower.dim
        check_widths(type(self).__name__, dims, output_dim)
        self.user_output, self.item_output = (VectorOutput(dim, output_dim, similarity, rngs=rngs) for dim in dims)
        self.negatives: Negatives = negatives

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """``{"query": (batch, dim), "item": (items, dim)}``, and "negatives" where they are sampled."""
        return candidates(type(self).__name__, self.query(acts, numbers), self.item(acts, numbers), self.negatives)

    def query(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        """Return the users' vectors alone, ``(batch, dim)``, for an online service. float32."""
        raise NotImplementedError

    def item(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        """Return the items' vectors alone, ``(items, dim)``, for an index. float32."""
        return self.item_output(self.item_tower(acts, numbers))


def check_widths(model: str, dims: tuple[int, int], output_dim: int | None) -> None:
    """Raise ValueError unless the towers end, or are brought, to one width."""
    if output_dim is None and dims[0] != dims[1]:
        raise ValueError(f"{model} without output_dim needs towers of one width, got {dims[0]} and {dims[1]}")
    if output_dim is not None:
        fields.integer(f"{model}.output_dim", output_dim)


def check_towers(model: str, user: str, item: str, similarity: Similarity, negatives: Negatives) -> None:
    """Raise ValueError unless the towers read different groups and the options are known."""
    for option, value, allowed in (
        ("similarity", similarity, get_args(Similarity)),
        ("negatives", negatives, get_args(Negatives)),
    ):
        if value not in allowed:
            raise ValueError(f"{model}.{option}: unknown name '{value}': {nearest(str(value), allowed)}")
    if user == item:
        raise ValueError(f"{model} needs two groups, but both towers read the group '{user}'")


def candidates(model: str, query: jax.Array, items: jax.Array, negatives: Negatives) -> dict[str, jax.Array]:
    """Return the outputs that the losses read: query and item, and negatives where they are sampled.

    Args:
      model: its name, for errors.
      query: ``(batch, dim)``.
      items: ``(items, dim)``, the ``batch`` items chosen first.
      negatives: where they come from.

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
