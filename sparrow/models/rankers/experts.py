"""Experts and gates that several models of many tasks share."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.models.layers.mlp import MLP, Layers
from sparrow.models.layers.towers import Logits


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
        self.dim = expert_mlp.dim

    def __call__(self, x: jax.Array) -> dict[str, jax.Array]:
        """Map ``(batch, dim)`` to one ``(batch, units)`` for each task."""
        experts = [expert(x) for expert in self.experts]
        return {task: mix(gate(x), experts) for task, gate in self.gates.items()}
