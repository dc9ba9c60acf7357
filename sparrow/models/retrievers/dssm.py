"""DSSM: two towers, one vector for the user and one for the item."""

from __future__ import annotations

import jax
from flax import nnx

from sparrow.models.inputs import Arrays, Inputs
from sparrow.models.layers.towers import GroupTower, Tower
from sparrow.models.records import register_model
from sparrow.models.retrievers.matching import Negatives, Similarity, TwoTowers, check_towers


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

    >>> import jax.numpy as jnp
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
    """`DSSM` under the name of TorchEasyRec's second version.

    There, the towers of the first version have tables of their own even where features name one table, and those of
    the second share it. Here features that name one table share it in both.

    >>> import jax.numpy as jnp
    >>> from sparrow.models.layers.mlp import MLP
    >>> inputs = Inputs(acts={"user": 8, "item": 8}, groups={"user": ["user"], "item": ["item"]})
    >>> towers = {"user_tower": Tower("user", MLP((16,))), "item_tower": Tower("item", MLP((16,)))}
    >>> DSSMv2(inputs, **towers, rngs=nnx.Rngs(0)).query({"user": jnp.ones((2, 8))}, {}).shape
    (2, 16)
    """
