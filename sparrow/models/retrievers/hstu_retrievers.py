"""HSTU for matching: the vector of the user is the state after the newest token of the history."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.embedding import Rows
from sparrow.models.inputs import Arrays, Inputs
from sparrow.models.layers.norms import LayerNorm
from sparrow.models.layers.towers import Tower
from sparrow.models.rankers.hstu_rankers import History
from sparrow.models.records import register_model
from sparrow.models.retrievers.sasrec import HistoryTowers, check_same_features
from sparrow.models.retrievers.two_towers import Negatives, Similarity, check_towers
from sparrow.models.sequences.gated import HSTU
from sparrow.models.sequences.hstu_channel import ChannelLayers, HSTUChannel
from sparrow.models.sequences.layout import Layout, Tokens


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
        width, self.every_position = hstu.embedding_dim, every_position
        self._make_item_tower(inputs, item_tower, width, output_dim, similarity, negatives, rngs=rngs)

    def states(self, acts: Arrays, numbers: Arrays) -> tuple[jax.Array, Layout, Rows]:
        x, layout = self.hstu(Tokens.of(*self.history(acts, numbers)))
        return x, layout, self.history.content.sequence(acts, numbers).rows

    def normalized(self, x: jax.Array) -> jax.Array:
        return self.norm(x)


@register_model("hstu_retriever")
class HSTURetriever(HistoryTowers):
    """Two towers: an `STU` over the user's context and history, and layers over the item.

    ::

        query = linear(post(STU layers(context, history) at the newest token))      zeros without any token
        item  = linear(item tower(its group))

    Without output_dim the linear layers are left out, and the widths must agree; with similarity "cosine" both are
    divided by their norms. The groups are those of `HSTURanker`, without candidates, and optionally "query_time", one
    number: the time of the request, which times are counted from instead of that of the newest element. The outputs
    are those of `DSSM`. With every_position a training step learns from every element, as that of `SASRec` does; then
    there is no context (it attends to all of the history, targets included), nor anything that counts from its end.

    >>> from sparrow.models.inputs import Sequence
    >>> from sparrow.models.sequences.gated import STU
    >>> inputs = Inputs(acts={"item": 4}, sequences={"clicks": 4}, groups={"uih": ["clicks"], "items": ["item"]})
    >>> channel = HSTUChannel(STU(8, 2, 4, 4, scaling_seqlen=6, num_position_buckets=8))
    >>> model = HSTURetriever(inputs, channel=channel, item_tower=Tower("items"), output_dim=4, rngs=nnx.Rngs(0))
    >>> acts = {"item": jnp.ones((2, 4)), "clicks": Sequence(jnp.ones((2, 5, 4)), jnp.array([5, 0]))}
    >>> {name: array.shape for name, array in model(acts, {}).items()}
    {'query': (2, 4), 'item': (2, 4)}

    Reference: Zhai et al., Actions Speak Louder than Words, ICML 2024, arXiv 2402.17152, and its published program.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        channel: HSTUChannel,
        item_tower: Tower,
        every_position: bool = False,
        output_dim: int | None = None,
        similarity: Similarity = "inner_product",
        negatives: Negatives = "in_batch",
        rngs: nnx.Rngs,
    ) -> None:
        check_towers("HSTURetriever", channel.name, item_tower.input, similarity, negatives)
        optional = (*channel.groups, "contextual", "query_time")
        inputs.check("HSTURetriever", required=(channel.name, item_tower.input), optional=optional)
        if channel.content is not None:
            raise ValueError("HSTURetriever: a channel without candidates has no content; remove it")
        if every_position:
            self._check_positions(inputs, channel)
            check_same_features("HSTURetriever", inputs, channel.name, item_tower.input)
        self.channel = ChannelLayers("HSTURetriever", channel, inputs, 0, rngs=rngs)
        reads_request = "query_time" in inputs.groups and channel.stu.num_time_buckets is not None
        self.request = inputs.group("query_time") if reads_request else None
        if self.request is not None and self.request.dim != 1:
            raise ValueError("HSTURetriever: the group 'query_time' must hold one number, the time")
        width, self.every_position = channel.stu.embedding_dim, every_position
        self._make_item_tower(inputs, item_tower, width, output_dim, similarity, negatives, rngs=rngs)

    @property
    def why_no_states(self) -> str | None:
        return self.channel.channel.stu.why_no_states or self.why_no_append

    @property
    def why_no_append(self) -> str | None:
        return self.channel.why_no_append

    @staticmethod
    def _check_positions(inputs: Inputs, channel: HSTUChannel) -> None:
        """Raise ValueError for options by which an element would depend on those after it."""
        stu = channel.stu
        for problem, is_there in (
            ("the group 'contextual', which attends to all of the history", "contextual" in inputs.groups),
            ("num_time_buckets, as times count from the request", stu.num_time_buckets is not None),
            ("time_periods, as they are those of the request", bool(channel.time_periods)),
            ("truncation_split_layer, which leaves elements out", stu.truncation_split_layer is not None),
        ):
            if is_there:
                raise ValueError(f"HSTURetriever.every_position excludes {problem}; remove one of the two")

    def states(self, acts: Arrays, numbers: Arrays) -> tuple[jax.Array, Layout, Rows]:
        return self.channel.states(acts, numbers, None)

    def normalized(self, x: jax.Array) -> jax.Array:
        return self.channel.post(x, None)

    def query(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        request = None
        if self.request is not None:
            request = self.request.concat({}, numbers)[:, 0].astype(jnp.float32)
        return self.user_output(self.channel.newest(acts, numbers, request))
