"""MMoE, PLE and DBMTL: several tasks, which share experts or read the layers of each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP, Layers
from sparrow.models.layers.towers import Logits, TaskLogits, TaskTower, task_names
from sparrow.models.rankers.mask_net import MaskBlocks
from sparrow.models.records import register_model
from sparrow.registry import nearest


def build_experts(mlp: MLP, dim: int, count: int, *, rngs: nnx.Rngs) -> nnx.List[Layers]:
    """Return ``count`` networks of one shape, each with its own parameters."""
    return nnx.List([mlp.build(dim, rngs=rngs) for _ in range(count)])


def mix(gate: jax.Array, experts: Sequence[jax.Array]) -> jax.Array:
    """Return ``Σ_e softmax(gate)[e] * experts[e]``.

    Args:
      gate: ``(batch, experts)``; ``(batch,)`` where there is one expert.
      experts: the output of each, ``(batch, units)``.

    >>> mix(jnp.zeros((1, 2)), [jnp.array([[2.0, 4.0]]), jnp.array([[4.0, 0.0]])])
    Array([[3., 2.]], dtype=float32)
    """
    stacked = jnp.stack(experts, axis=1)  # (batch, experts, units)
    weights = jax.nn.softmax(gate.reshape(stacked.shape[:2]), axis=1)
    return jnp.einsum("be,beu->bu", weights.astype(stacked.dtype), stacked)


class Mixture(nnx.Module):
    """Experts over one input, and for each task a gate that mixes them.

    ::

        gate[t] = softmax(linear(gate MLP of task t(x)))          (batch, num_experts)
        mix[t]  = Σ_e gate[t][e] * expert_e(x)

    >>> mixture = Mixture(3, ("click", "buy"), expert_mlp=MLP((4,)), num_experts=2, rngs=nnx.Rngs(0))
    >>> {task: array.shape for task, array in mixture(jnp.ones((2, 3))).items()}
    {'click': (2, 4), 'buy': (2, 4)}
    """

    def __init__(
        self,
        dim: int,
        tasks: Sequence[str],
        *,
        expert_mlp: MLP,
        num_experts: int,
        gate_mlp: MLP | None = None,
        rngs: nnx.Rngs,
    ) -> None:
        self.experts = build_experts(expert_mlp, dim, num_experts, rngs=rngs)
        self.gates = nnx.Dict({task: Logits(dim, gate_mlp, num_experts, rngs=rngs) for task in tasks})

    def __call__(self, x: jax.Array) -> dict[str, jax.Array]:
        """Map ``(batch, dim)`` to one ``(batch, units)`` for each task."""
        experts = [expert(x) for expert in self.experts]
        return {task: mix(gate(x), experts) for task, gate in self.gates.items()}


@register_model("mmoe", is_per_example=True)
class MMoE(nnx.Module):
    """Multi-gate mixture of experts: tasks that differ share what helps them, and no more.

    ::

        x         = features of the only group, side by side
        gate[t]   = softmax(linear(gate MLP of task t(x)))          (batch, num_experts)
        mix[t]    = Σ_e gate[t][e] * expert_e(x)
        output[t] = linear(MLP of task t(mix[t]))

    >>> inputs = Inputs(acts={"user": 8, "item": 8}, groups={"all": ["user", "item"]})
    >>> towers = (TaskTower("click", MLP((8,))), TaskTower("buy", MLP((8,))))
    >>> model = MMoE(inputs, expert_mlp=MLP((16,)), task_towers=towers, rngs=nnx.Rngs(0))
    >>> outputs = model({"user": jnp.ones((4, 8)), "item": jnp.ones((4, 8))}, {})
    >>> {name: array.shape for name, array in outputs.items()}
    {'click': (4,), 'buy': (4,)}

    Reference: Ma et al., Modeling Task Relationships in Multi-task Learning with Multi-gate Mixture-of-Experts,
    KDD 2018.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        expert_mlp: MLP,
        task_towers: tuple[TaskTower, ...],
        num_experts: int = 3,
        gate_mlp: MLP | None = None,
        rngs: nnx.Rngs,
    ) -> None:
        self.group: Group = inputs.single("MMoE")
        fields.integer("MMoE.num_experts", num_experts)
        tasks = task_names("MMoE", task_towers)
        self.mixture = Mixture(
            self.group.dim, tasks, expert_mlp=expert_mlp, num_experts=num_experts, gate_mlp=gate_mlp, rngs=rngs
        )
        self.towers = TaskLogits(task_towers, dict.fromkeys(tasks, expert_mlp.dim), rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        return self.towers(self.mixture(self.group.concat(acts, numbers)))


@dataclasses.dataclass(frozen=True)
class ExtractionNetwork:
    """One layer of `PLE`.

    Attributes:
      expert_num_per_task: the number of experts that each task has for itself.
      task_expert_net: the layers of those.
      share_num: the number of experts that all tasks share.
      share_expert_net: the layers of those; None: as ``task_expert_net``. Both end in one width.
    """

    expert_num_per_task: fields.Count
    task_expert_net: MLP
    share_num: fields.Count = 1
    share_expert_net: MLP | None = None

    def __post_init__(self) -> None:
        fields.check(self)
        if self.shared.dim != self.task_expert_net.dim:
            raise ValueError(
                f"ExtractionNetwork: task_expert_net ends in {self.task_expert_net.dim} units and share_expert_net in "
                f"{self.shared.dim}; a gate mixes them, so the widths must agree"
            )

    @property
    def shared(self) -> MLP:
        return self.share_expert_net or self.task_expert_net


class Extraction(nnx.Module):
    """The layer that an `ExtractionNetwork` describes; the last one of a model mixes nothing for a shared input."""

    def __init__(
        self, network: ExtractionNetwork, tasks: Sequence[str], dim: int, *, last: bool, rngs: nnx.Rngs
    ) -> None:
        own, shared = network.expert_num_per_task, network.share_num
        self.tasks = tuple(tasks)  # in this order their experts stand before the shared gate
        self.shared = build_experts(network.shared, dim, shared, rngs=rngs)
        self.own = nnx.Dict({task: build_experts(network.task_expert_net, dim, own, rngs=rngs) for task in tasks})
        self.gates = nnx.Dict({task: Logits(dim, None, own + shared, rngs=rngs) for task in tasks})
        self.shared_gate = nnx.data(None) if last else Logits(dim, None, own * len(tasks) + shared, rngs=rngs)

    def __call__(self, inputs: dict[str, jax.Array], shared: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
        """Map the input of each task, and the shared one, to those of the next layer."""
        common = [expert(shared) for expert in self.shared]
        own = {task: [expert(inputs[task]) for expert in self.own[task]] for task in self.tasks}
        outputs = {task: mix(self.gates[task](inputs[task]), [*own[task], *common]) for task in self.tasks}
        if self.shared_gate is not None:
            shared = mix(self.shared_gate(shared), [*(y for task in self.tasks for y in own[task]), *common])
        return outputs, shared


@register_model("ple", is_per_example=True)
class PLE(nnx.Module):
    """Progressive layered extraction: what helps one task and hurts another stays in that task's experts.

    ::

        x[t] = s   = features of the only group, side by side
        for each extraction network:
            x'[t]  = Σ_e softmax(linear(x[t]))[e] * e                e: experts of t over x[t], shared ones over s
            s'     = Σ_e softmax(linear(s))[e] * e                   e: all experts; not in the last network
        output[t]  = linear(MLP of task t(x[t]))

    >>> inputs = Inputs(acts={"user": 8, "item": 8}, groups={"all": ["user", "item"]})
    >>> network = ExtractionNetwork(expert_num_per_task=2, task_expert_net=MLP((16,)), share_num=1)
    >>> towers = (TaskTower("click", MLP((8,))), TaskTower("buy"))
    >>> model = PLE(inputs, extraction_networks=(network, network), task_towers=towers, rngs=nnx.Rngs(0))
    >>> outputs = model({"user": jnp.ones((4, 8)), "item": jnp.ones((4, 8))}, {})
    >>> {name: array.shape for name, array in outputs.items()}
    {'click': (4,), 'buy': (4,)}

    Reference: Tang et al., Progressive Layered Extraction, RecSys 2020.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        extraction_networks: tuple[ExtractionNetwork, ...],
        task_towers: tuple[TaskTower, ...],
        rngs: nnx.Rngs,
    ) -> None:
        self.group: Group = inputs.single("PLE")
        self.tasks = task_names("PLE", task_towers)
        if not extraction_networks:
            raise ValueError("PLE.extraction_networks must be at least one network, got none")
        dim, networks = self.group.dim, []
        for index, network in enumerate(extraction_networks, 1):
            networks.append(Extraction(network, self.tasks, dim, last=index == len(extraction_networks), rngs=rngs))
            dim = network.task_expert_net.dim
        self.networks = nnx.List(networks)
        self.towers = TaskLogits(task_towers, dict.fromkeys(self.tasks, dim), rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        shared = self.group.concat(acts, numbers)
        inputs = dict.fromkeys(self.tasks, shared)
        for network in self.networks:
            inputs, shared = network(inputs, shared)
        return self.towers(inputs)


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
        inputs = dict.fromkeys(self.outputs, x) if self.mixture is None else self.mixture(x)
        relation: dict[str, jax.Array] = {}
        for task, related in self.related:
            y = self.own[task](inputs[task]) if task in self.own else inputs[task]
            if task in self.relation:
                y = self.relation[task](jnp.concatenate([y, *(relation[name] for name in related)], axis=1))
            relation[task] = y
        return {task: self.outputs[task](relation[task]) for task, _ in self.related}
