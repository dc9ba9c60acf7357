"""Between the bags of a stack and its features: activations from pooled rows, and back for gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from sparrow.embedding.packed_batch import Group


def activations(groups: Sequence[Group], rows: jax.Array) -> dict[str, jax.Array]:
    """Activations by feature, (batch, dim) each, from the pooled rows of a stack's bags, (num_bags, dim)."""
    made: dict[str, jax.Array] = {}
    start, dim = 0, rows.shape[1]
    for group in groups:
        size = len(group.features) * group.num_bags
        # Slices of columns: a model that concatenates its features again gets this very array, because XLA
        # joins neighboring slices to one. It does not see through slices of a middle axis.
        block = rows[start : start + size].reshape(group.num_bags, len(group.features) * dim)
        made |= {name: block[:, i * dim : (i + 1) * dim] for i, name in enumerate(group.features)}
        start += size
    return made


def bag_grads(
    groups: Sequence[Group], act_grads: Mapping[str, jax.Array], limits: Mapping[str, float | None], dim: int
) -> jax.Array:
    """Return the gradient of each bag of a stack, (num_bags, dim), each within its feature's limit."""
    blocks = [
        jnp.concatenate([_clamped(act_grads[name], limits[name]) for name in group.features], axis=1).reshape(-1, dim)
        for group in groups
    ]
    return blocks[0] if len(blocks) == 1 else jnp.concatenate(blocks)


def _clamped(grad: jax.Array, limit: float | None) -> jax.Array:
    """Return the gradient within its table's limits. One in 16 bits stays so: the update reads half as much."""
    grad = jnp.asarray(grad)
    if limit is None and grad.dtype in (jnp.bfloat16, jnp.float16):
        return grad
    grad = grad.astype(jnp.float32)
    return grad if limit is None else jnp.clip(grad, -limit, limit)
