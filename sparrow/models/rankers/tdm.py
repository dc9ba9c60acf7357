"""TDM: the model that scores the nodes of a tree of items."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.models.inputs import Arrays, Group, Inputs, SequenceGroup
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.towers import Logits
from sparrow.models.records import register_model
from sparrow.models.sequences import WindowAttention


@register_model("tdm")
class TDM(nnx.Module):
    """Tree-based deep model: the probability that a user wants something below a node of the tree.

    ::

        windows = attention of the node to each window of the history             see `WindowAttention`
        logits  = linear(final MLP([windows, node, features of the other groups]))

    One group holds the history and the features of the node; the others hold single features. The candidate of an
    example is any node, leaf or not: data and sampler decide.

    >>> from sparrow.models.inputs import Sequence
    >>> inputs = Inputs(acts={"user": 8, "node": 4}, sequences={"clicks": 4},
    ...                 groups={"deep": ["user"], "history": ["node", "clicks"]})
    >>> model = TDM(inputs, windows_len=(2, 3), attn_mlp=MLP((8,)), final=MLP((8,)), rngs=nnx.Rngs(0))
    >>> acts = {"user": jnp.ones((2, 8)), "node": jnp.ones((2, 4)),
    ...         "clicks": Sequence(jnp.ones((2, 5, 4)), jnp.array([5, 0]))}
    >>> model(acts, {})["logits"].shape
    (2,)

    Reference: Zhu et al., 2018, arXiv 1801.02294.

    Attributes:
      windows_len: the length of each window of the history, from its first element on.
      attn_mlp: the layers that score an element of the history against the node.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        windows_len: tuple[int, ...],
        attn_mlp: MLP,
        final: MLP,
        num_classes: int = 1,
        rngs: nnx.Rngs,
    ) -> None:
        inputs.check("TDM", required=tuple(inputs.groups))
        histories = [name for name, names in inputs.groups.items() if any(f in inputs.sequences for f in names)]
        if len(histories) != 1:
            raise ValueError(f"TDM reads one group with sequences, got {len(histories)}: {', '.join(histories)}")
        self.history: SequenceGroup = inputs.sequence_group(histories[0])
        self.groups: tuple[Group, ...] = tuple(inputs.group(name) for name in inputs.groups if name != histories[0])
        self.attention = WindowAttention(self.history, attn_mlp=attn_mlp, windows_len=windows_len, rngs=rngs)
        width = self.attention.dim + sum(group.dim for group in self.groups)
        self.logits = Logits(width, final, num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        parts = [self.attention(self.history.sequence(acts, numbers), self.history.query(acts, numbers))]
        parts += [group.concat(acts, numbers) for group in self.groups]
        return {"logits": self.logits(jnp.concatenate(parts, axis=1))}
