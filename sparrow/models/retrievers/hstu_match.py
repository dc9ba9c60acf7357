"""HSTU for matching: the user's vector is the state after the last element of the history."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.embedding import Rows
from sparrow.models.inputs import Arrays, Inputs
from sparrow.models.layers.norms import LayerNorm
from sparrow.models.layers.towers import GroupTower, Tower
from sparrow.models.rankers.dlrm_hstu import History
from sparrow.models.records import register_model
from sparrow.models.retrievers.history_towers import HistoryTowers, check_same_features
from sparrow.models.retrievers.matching import Negatives, Similarity, check_towers, outputs
from sparrow.models.sequences.hstu import HSTU
from sparrow.models.sequences.layout import Layout, Tokens, no_rows


@register_model("hstu_match")
class HSTUMatch(HistoryTowers):
    """Two towers: an HSTU over the user's history, and layers over the item.

    ::

        query = linear(norm(HSTU layers(history) at its last element))        see `HSTU`; of zeros without a history
        item  = linear(item tower(its group))

    Without output_dim the linear layers are left out, and the widths must agree; with similarity "cosine" both are
    divided by their norms. The history is the group ``history_input``, sequences alone, the oldest element first, with
    the groups of that name and ``_action`` or ``_timestamp``, as `DlrmHSTU` has them. The outputs are those of `DSSM`.
    With every_position a training step learns from every element, as that of `SASRec` does.

    >>> from sparrow.models.inputs import Sequence
    >>> from sparrow.models.layers.mlp import MLP
    >>> inputs = Inputs(acts={"item": 4}, sequences={"clicks": 4}, groups={"uih": ["clicks"], "item": ["item"]})
    >>> hstu = HSTU(embedding_dim=8, num_heads=2, hidden_dim=4, attention_dim=4, scaling_seqlen=5, attn_num_layers=1)
    >>> model = HSTUMatch(inputs, hstu=hstu, item_tower=Tower("item", MLP((8,))), output_dim=4, rngs=nnx.Rngs(0))
    >>> acts = {"item": jnp.ones((2, 4)), "clicks": Sequence(jnp.ones((2, 5, 4)), jnp.array([5, 0]))}
    >>> {name: array.shape for name, array in model(acts, {}).items()}
    {'query': (2, 4), 'item': (2, 4)}

    Reference: Zhai et al., Actions Speak Louder than Words, ICML 2024, arXiv 2402.17152.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        hstu: HSTU,
        item_tower: Tower,
        history_input: str = "uih",
        every_position: bool = False,
        output_dim: int | None = None,
        similarity: Similarity = "inner_product",
        negatives: Negatives = "in_batch",
        rngs: nnx.Rngs,
    ) -> None:
        check_towers("HSTUMatch", history_input, item_tower.input, similarity, negatives)
        optional = (f"{history_input}_action", f"{history_input}_timestamp")
        inputs.check("HSTUMatch", required=(history_input, item_tower.input), optional=optional)
        if every_position:
            check_same_features("HSTUMatch", inputs, history_input, item_tower.input)
        self.history = History("HSTUMatch", inputs, history_input, hstu, rngs=rngs)
        self.hstu = hstu.build(rngs=rngs)
        self.norm = LayerNorm(hstu.embedding_dim, rngs=rngs)
        self.item_tower = GroupTower(item_tower, inputs, rngs=rngs)
        dims = hstu.embedding_dim, self.item_tower.dim
        self.user_output, self.item_output = outputs("HSTUMatch", dims, output_dim, similarity, rngs=rngs)
        self.negatives, self.every_position, self.deterministic = negatives, every_position, False

    def states(self, acts: Arrays, numbers: Arrays) -> tuple[jax.Array, Layout, Rows]:
        history, most, times = self.history(acts, numbers)
        context = jnp.zeros((history.lengths.shape[0], 0, history.values.shape[1]), history.values.dtype)
        x, layout = self.hstu(Tokens(context, history, no_rows(history), most, 0, times))
        return x, layout, self.history.content.sequence(acts, numbers).rows

    def normalized(self, x: jax.Array) -> jax.Array:
        return self.norm(x)
