"""DSSM: two towers, one vector for the user and one for the item."""

from __future__ import annotations

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Inputs
from sparrow.models.records import register_model
from sparrow.models.towers import GroupTower, Tower
from sparrow.registry import nearest

Similarity = Literal["inner_product", "cosine"]
Negatives = Literal["in_batch", "sampled"]


@register_model("dssm")
class DSSM(nnx.Module):
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

    >>> from sparrow.models.mlp import MLP
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
        for option, value, allowed in (
            ("similarity", similarity, get_args(Similarity)),
            ("negatives", negatives, get_args(Negatives)),
        ):
            if value not in allowed:
                raise ValueError(f"DSSM.{option}: unknown name '{value}': {nearest(str(value), allowed)}")
        if user_tower.input == item_tower.input:
            raise ValueError(f"DSSM needs two groups, but both towers read the group '{user_tower.input}'")
        inputs.check("DSSM", required=(user_tower.input, item_tower.input))
        self.user_tower = GroupTower(user_tower, inputs, rngs=rngs)
        self.item_tower = GroupTower(item_tower, inputs, rngs=rngs)
        dims = self.user_tower.dim, self.item_tower.dim
        if output_dim is None and dims[0] != dims[1]:
            raise ValueError(f"DSSM without output_dim needs towers of one width, got {dims[0]} and {dims[1]}")
        if output_dim is not None:
            fields.integer("DSSM.output_dim", output_dim)
        self.user_output = nnx.data(None) if output_dim is None else nnx.Linear(dims[0], output_dim, rngs=rngs)
        self.item_output = nnx.data(None) if output_dim is None else nnx.Linear(dims[1], output_dim, rngs=rngs)
        self.similarity, self.negatives = similarity, negatives

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """``{"query": (batch, dim), "item": (items, dim)}``, and "negatives" where they are sampled."""
        query, items = self.query(acts, numbers), self.item(acts, numbers)
        batch = query.shape[0]  # not len: an exported model has no number here
        if self.negatives == "in_batch" or items.shape[0] == batch:  # none are drawn to predict
            return {"query": query, "item": items}
        if items.shape[0] < batch:
            raise ValueError(
                f"DSSM with sampled negatives needs item features of more rows than the {batch} users: "
                f"the items chosen, then the negatives; got {items.shape[0]}"
            )
        return {"query": query, "item": items[:batch], "negatives": items[batch:]}

    def query(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        """The users' vectors alone, ``(batch, dim)``, for an online service. float32."""
        return self._output(self.user_tower(acts, numbers), self.user_output)

    def item(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        """The items' vectors alone, ``(items, dim)``, for an index. float32."""
        return self._output(self.item_tower(acts, numbers), self.item_output)

    def _output(self, x: jax.Array, linear: nnx.Linear | None) -> jax.Array:
        x = (x if linear is None else linear(x)).astype(jnp.float32)
        return unit(x) if self.similarity == "cosine" else x


def unit(x: jax.Array) -> jax.Array:
    """``x / |x|`` for each row; a row of zeros stays, and has gradient 0 instead of NaN.

    >>> unit(jnp.array([[3.0, 4.0], [0.0, 0.0]]))
    Array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    squares = jnp.square(x).sum(axis=1, keepdims=True)
    tiny = squares < 1e-24
    return jnp.where(tiny, 0.0, x * jax.lax.rsqrt(jnp.where(tiny, 1.0, squares)))
