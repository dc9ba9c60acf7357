"""MMoE: several tasks share experts, and each task has a gate that mixes them."""

from __future__ import annotations

import jax
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.towers import TaskLogits, TaskTower, task_names
from sparrow.models.rankers.experts import Mixture
from sparrow.models.records import register_model


@register_model("mmoe", is_per_example=True)
class MMoE(nnx.Module):
    """Multi-gate mixture of experts: tasks that differ share what helps them, and no more.

    ::

        x         = features of the only group, side by side
        gate[t]   = softmax(linear(gate MLP of task t(x)))          (batch, num_experts)
        mix[t]    = Σ_e gate[t][e] * expert_e(x)
        output[t] = linear(MLP of task t(mix[t]))

    >>> import jax.numpy as jnp
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
