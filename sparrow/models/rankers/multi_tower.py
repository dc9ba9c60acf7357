"""MultiTower, one network per group of features; MultiTowerDIN and TDM, with attention to histories."""

from __future__ import annotations

import dataclasses

import jax
from flax import nnx

from sparrow.models.inputs import Arrays, Group, Inputs, SequenceGroup
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.towers import GroupTower, Logits, Tower
from sparrow.models.records import register_model
from sparrow.models.sequences import TargetAttention, WindowAttention


@register_model("multi_tower", is_per_example=True)
class MultiTower(nnx.Module):
    """Each group of features has its own layers; their outputs are concatenated.

    ::

        logits = linear(final MLP([tower_1(group_1), tower_2(group_2), ...]))

    >>> import jax.numpy as jnp
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
        self.towers = nnx.List([GroupTower(tower, inputs, rngs=rngs) for tower in towers])
        self.logits = Logits(sum(tower.dim for tower in self.towers), final, num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        return {"logits": self.logits(*(tower(acts, numbers) for tower in self.towers))}


@dataclasses.dataclass(frozen=True)
class DINTower:
    """Attention of a candidate to a history.

    Attributes:
      input: the name of a group that holds sequences and the features that attend to them.
      attn_mlp: the layers that score an element of the history against the candidate.
    """

    input: str
    attn_mlp: MLP


class AttentionTower(nnx.Module):
    """The layers that a `DINTower` describes."""

    def __init__(self, tower: DINTower, inputs: Inputs, *, rngs: nnx.Rngs) -> None:
        self.group: SequenceGroup = inputs.sequence_group(tower.input)
        self.dim = self.group.sequences.dim
        self.attention = TargetAttention(self.group, attn_mlp=tower.attn_mlp, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        return self.attention(self.group.sequence(acts, numbers), self.group.query(acts, numbers))


@register_model("multi_tower_din", is_per_example=True)
class MultiTowerDIN(nnx.Module):
    """Deep interest network: what a user did before counts by how near it is to the candidate.

    ::

        tower_g = MLP of the tower(features of its group, side by side)
        din_s   = Σ_l softmax(score(candidate, x_l))_l * x_l               see `TargetAttention`
        logits  = linear(final MLP([tower_1, ..., din_1, ...]))

    A group of ``din_towers`` holds sequences of one length, and the single features that attend to them, in the same
    order: the candidate's id beside the sequence of ids, its category beside the sequence of categories.

    >>> import jax.numpy as jnp
    >>> from sparrow.models.inputs import Sequence
    >>> inputs = Inputs(acts={"user": 8, "item": 4}, sequences={"clicks": 4},
    ...                 groups={"deep": ["user", "item"], "history": ["item", "clicks"]})
    >>> model = MultiTowerDIN(inputs, towers=(Tower("deep", MLP((8,))),), din_towers=(DINTower("history", MLP((8,))),),
    ...                       final=MLP((8,)), rngs=nnx.Rngs(0))
    >>> acts = {"user": jnp.ones((2, 8)), "item": jnp.ones((2, 4)),
    ...         "clicks": Sequence(jnp.ones((2, 5, 4)), jnp.array([5, 0]))}
    >>> model(acts, {})["logits"].shape
    (2,)

    Reference: Zhou et al., Deep Interest Network, 2018, arXiv 1706.06978.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        din_towers: tuple[DINTower, ...],
        final: MLP,
        towers: tuple[Tower, ...] = (),
        num_classes: int = 1,
        rngs: nnx.Rngs,
    ) -> None:
        groups = [*(tower.input for tower in towers), *(tower.input for tower in din_towers)]
        if not din_towers or len(set(groups)) < len(groups):
            raise ValueError(f"MultiTowerDIN needs at least one of din_towers, each over its own group, got {groups}")
        inputs.check("MultiTowerDIN", required=groups)
        self.towers = nnx.List([GroupTower(tower, inputs, rngs=rngs) for tower in towers])
        self.din_towers = nnx.List([AttentionTower(tower, inputs, rngs=rngs) for tower in din_towers])
        width = sum(tower.dim for tower in self.towers) + sum(tower.dim for tower in self.din_towers)
        self.logits = Logits(width, final, num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        return {"logits": self.logits(*(tower(acts, numbers) for tower in (*self.towers, *self.din_towers)))}


@register_model("tdm")
class TDM(nnx.Module):
    """Tree-based deep model: the probability that a user wants something below a node of the tree.

    ::

        windows = attention of the node to each window of the history             see `WindowAttention`
        logits  = linear(final MLP([windows, node, features of the other groups]))

    One group holds the history and the features of the node; the others hold single features. The candidate of an
    example is any node, leaf or not: data and sampler decide.

    >>> import jax.numpy as jnp
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
        attended = self.attention(self.history.sequence(acts, numbers), self.history.query(acts, numbers))
        return {"logits": self.logits(attended, *(group.concat(acts, numbers) for group in self.groups))}
