"""MMoE: several tasks share experts, and each task has a gate that mixes them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.mlp import MLP
from sparrow.models.records import register_model
from sparrow.models.towers import Logits, TaskTower


@register_model("mmoe")
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
        if len(inputs.groups) != 1:
            raise ValueError(f"MMoE reads one group of features, got {len(inputs.groups)}: {', '.join(inputs.groups)}")
        inputs.check("MMoE", required=tuple(inputs.groups))
        fields.integer("MMoE.num_experts", num_experts)
        tasks = [tower.task for tower in task_towers]
        if not tasks or len(set(tasks)) < len(tasks):
            raise ValueError(f"MMoE.task_towers must be at least one tower, each for its own task, got {tasks}")
        self.tasks = tuple(tasks)
        self.group: Group = inputs.group(next(iter(inputs.groups)))
        dim = self.group.dim
        self.experts = nnx.List([expert_mlp.build(dim, rngs=rngs) for _ in range(num_experts)])
        self.gates = nnx.Dict({task: Logits(dim, gate_mlp, num_experts, rngs=rngs) for task in tasks})
        self.towers = nnx.Dict(
            {tower.task: Logits(expert_mlp.dim, tower.mlp, tower.num_classes, rngs=rngs) for tower in task_towers}
        )

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """Logits by task: ``(batch,)``, or ``(batch, num_classes)``."""
        x = self.group.concat(acts, numbers)
        experts = jnp.stack([expert(x) for expert in self.experts], axis=1)  # (batch, experts, units)
        return {task: self.towers[task](self._mix(task, x, experts)) for task in self.tasks}

    def _mix(self, task: str, x: jax.Array, experts: jax.Array) -> jax.Array:
        gate = self.gates[task](x).reshape(experts.shape[:2])  # one expert gives (batch,)
        return jnp.einsum("be,beu->bu", jax.nn.softmax(gate, axis=1).astype(experts.dtype), experts)
