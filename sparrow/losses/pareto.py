"""Weights of tasks that no task can improve without hurting another."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


def pareto_weights(gram: ArrayLike, floors: ArrayLike) -> jax.Array:
    """Return the weights of the tasks' losses whose gradients cancel as far as they can.

    ::

        minimize |Σ_t w_t g_t|²   with   Σ_t w_t = 1,  w_t >= floors_t
        v = w - floors without its bounds:   [G e; eᵀ 0] [v; λ] = [-G floors; 1 - Σ floors]     in least squares
        w = floors + the nearest point to v with  v_t >= 0,  Σ_t v_t = 1 - Σ floors

    Args:
      gram: ``(tasks, tasks)``, G: the inner products of the gradients g_t of the tasks' losses.
      floors: ``(tasks,)``, the least weight of each task; their sum is below 1.

    >>> print(pareto_weights(jnp.array([[4.0, 0.0], [0.0, 1.0]]), jnp.zeros(2)).round(3))
    [0.2 0.8]

    Reference: Lin et al., A Pareto-Efficient Algorithm for Multiple Objective Optimization in E-Commerce
    Recommendation, RecSys 2019.
    """
    gram, floors = jnp.asarray(gram, jnp.float32), jnp.asarray(floors, jnp.float32)
    tasks, free = gram.shape[0], 1 - floors.sum()
    scale = jnp.trace(gram) / tasks
    gram = gram / jnp.where(scale > 0, scale, 1)  # the weights do not change, the digits of the solution do
    matrix = jnp.block([[gram, jnp.ones((tasks, 1))], [jnp.ones((1, tasks)), jnp.zeros((1, 1))]])
    right = jnp.append(-gram @ floors, free)
    relaxed = jnp.linalg.lstsq(matrix, right)[0][:tasks]
    return floors + _onto_simplex(relaxed, free)


def _onto_simplex(v: jax.Array, total: jax.Array) -> jax.Array:
    """Return the nearest point to ``v`` whose numbers are at least 0 and have the sum ``total``."""
    ordered = jnp.sort(v)[::-1]
    shift = (jnp.cumsum(ordered) - total) / jnp.arange(1, v.shape[0] + 1)
    count = jnp.sum(ordered > shift)
    return jnp.maximum(v - shift[count - 1], 0)
