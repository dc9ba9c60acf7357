"""DBMTL: the networks of some tasks read those of others, as one target follows from another."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP, Layers
from sparrow.models.layers.towers import Logits, TaskTower, task_names
from sparrow.models.rankers.experts import Mixture
from sparrow.models.rankers.mask_net import MaskBlocks
from sparrow.models.records import register_model
from sparrow.registry import nearest


@dataclasses.dataclass(frozen=True)
class BayesTaskTower(TaskTower):
    """The layers of one task of `DBMTL`.

    Attributes:
      task: the task's name, and the name of the output.
      mlp: the layers over the shared input; None for none.
      num_classes: the number of logits of an example.
      relation_tower_names: tasks before this one whose layers it reads.
      relation_mlp: the layers over the task's own and those of the related tasks.
    """

    relation_tower_names: tuple[str, ...] = ()
    relation_mlp: MLP | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.relation_tower_names and self.relation_mlp is None:
            raise ValueError(
                f"BayesTaskTower '{self.task}' has relation_tower_names without relation_mlp; add the layers that read "
                "them"
            )


@register_model("dbmtl", is_per_example=True)
class DBMTL(nnx.Module):
    """Deep Bayesian multi-target learning: P(buy | x) is learned as P(buy | click, x), through the tasks' layers.

    ::

        x           = features of the only group; then mask blocks; then bottom MLP             each where given
        input[t]    = mixture of experts for task t(x)                                          x without expert_mlp
        own[t]      = MLP of task t(input[t])
        relation[t] = relation MLP of t([own[t], relation[r] for r of relation_tower_names])    own[t] without
        output[t]   = linear(relation[t])

    >>> inputs = Inputs(acts={"user": 8, "item": 8}, groups={"all": ["user", "item"]})
    >>> buy = BayesTaskTower("buy", MLP((8,)), relation_tower_names=("click",), relation_mlp=MLP((4,)))
    >>> model = DBMTL(inputs, task_towers=(BayesTaskTower("click", MLP((8,))), buy), rngs=nnx.Rngs(0))
    >>> outputs = model({"user": jnp.ones((4, 8)), "item": jnp.ones((4, 8))}, {})
    >>> {name: array.shape for name, array in outputs.items()}
    {'click': (4,), 'buy': (4,)}

    Reference: Wang et al., Deep Bayesian Multi-Target Learning for Recommender Systems, 2019, arXiv 1902.09154.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        task_towers: tuple[BayesTaskTower, ...],
        mask_net: MaskBlocks | None = None,
        bottom_mlp: MLP | None = None,
        expert_mlp: MLP | None = None,
        gate_mlp: MLP | None = None,
        num_experts: int = 3,
        rngs: nnx.Rngs,
    ) -> None:
        self.group: Group = inputs.single("DBMTL")
        tasks = task_names("DBMTL", task_towers)
        fields.integer("DBMTL.num_experts", num_experts)
        if gate_mlp is not None and expert_mlp is None:
            raise ValueError("DBMTL was given gate_mlp without expert_mlp; a gate mixes experts: give both or neither")
        dim, shared = self.group.dim, []
        for layers in (mask_net, bottom_mlp):
            if layers is not None:
                shared.append(layers.build(dim, rngs=rngs))
                dim = layers.dim
        self.shared = nnx.List(shared)
        self.mixture = nnx.data(None)
        if expert_mlp is not None:
            self.mixture = Mixture(
                dim, tasks, expert_mlp=expert_mlp, num_experts=num_experts, gate_mlp=gate_mlp, rngs=rngs
            )
            dim = expert_mlp.dim
        self.own = nnx.Dict({t.task: t.mlp.build(dim, rngs=rngs) for t in task_towers if t.mlp is not None})
        self.related = tuple((tower.task, tower.relation_tower_names) for tower in task_towers)
        self.relation: nnx.Dict[Layers] = nnx.Dict({})
        self.outputs: nnx.Dict[Logits] = nnx.Dict({})
        width: dict[str, int] = {}  # of relation[t]
        for tower in task_towers:
            width[tower.task] = dim if tower.mlp is None else tower.mlp.dim
            for name in tower.relation_tower_names:
                if name == tower.task or name not in width:
                    raise ValueError(
                        f"DBMTL: the tower '{tower.task}' names the relation '{name}', which must be a tower before "
                        f"it: {nearest(name, [task for task in width if task != tower.task])}"
                    )
            if tower.relation_mlp is not None:
                read = width[tower.task] + sum(width[name] for name in tower.relation_tower_names)
                self.relation[tower.task] = tower.relation_mlp.build(read, rngs=rngs)
                width[tower.task] = tower.relation_mlp.dim
            self.outputs[tower.task] = Logits(width[tower.task], None, tower.num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        x = self.group.concat(acts, numbers)
        for layers in self.shared:
            x = layers(x)
        inputs = None if self.mixture is None else self.mixture(x)
        relation: dict[str, jax.Array] = {}
        for task, related in self.related:
            y = x if inputs is None else inputs[task]
            if task in self.own:
                y = self.own[task](y)
            if task in self.relation:
                y = self.relation[task](jnp.concatenate([y, *(relation[name] for name in related)], axis=1))
            relation[task] = y
        return {task: self.outputs[task](relation[task]) for task, _ in self.related}
