"""Several tasks, one number to minimize: each task's weight, the examples it is about, and the sum.

Reference: Ma et al., `Entire Space Multi-Task Model <https://arxiv.org/abs/1804.07931>`_, for the task space: a
conversion can only follow a click, so the other examples count less for conversions, or not at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from sparrow import fields
from sparrow.losses import _checks as checks
from sparrow.losses.base import reduce
from sparrow.registry import answering, nearest


@dataclasses.dataclass(frozen=True)
class TaskWeights:
    """The weight of one task in the total, and the examples that it is about.

    Attributes:
      weight: the factor of the task's mean loss.
      in_task_space_weight: the weight of the examples of the task's space, those whose indicator is above 0.
      out_task_space_weight: the weight of the others.
    """

    weight: fields.NotNegative = 1.0
    in_task_space_weight: fields.NotNegative = 1.0
    out_task_space_weight: fields.NotNegative = 1.0

    def __post_init__(self) -> None:
        fields.check(self)

    @property
    def has_space(self) -> bool:
        """Whether the two task-space weights change anything."""
        return (self.in_task_space_weight, self.out_task_space_weight) != (1.0, 1.0)


@answering
def combine(
    values: Mapping[str, ArrayLike],
    tasks: Mapping[str, TaskWeights] | None = None,
    weights: Mapping[str, ArrayLike] | None = None,
    indicators: Mapping[str, ArrayLike] | None = None,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the sum over tasks of each task's weighted mean loss, and its terms.

    ::

        w[t]     = weights[t] * (in_task_space_weight where indicators[t] > 0, else out_task_space_weight)
        terms[t] = weight * mean(values[t] * w[t] / mean(w[t]))
        total    = sum of terms

    A task none of whose examples weigh anything (no click in the batch, with ``out_task_space_weight`` 0) adds 0.

    Args:
      values: per task, what its loss gave: one value per example.
      tasks: per task, its weights; a task that is not named has weight 1 everywhere.
      weights: per task, sample weights, one per example; a task that is not named has none.
      indicators: per task, one number per example, above 0 in its space (such as the click label); needed for a task
        that has task-space weights.

    Returns:
      ``(total, terms)``, a scalar and a scalar per task: the pair that ``jax.grad(..., has_aux=True)`` expects.

    >>> values = {"click": jnp.array([1.0, 3.0]), "buy": jnp.array([5.0, 1.0])}
    >>> tasks = {"buy": TaskWeights(weight=0.5, out_task_space_weight=0.0)}
    >>> total, terms = combine(values, tasks, indicators={"buy": jnp.array([0, 1])})
    >>> print(total, {task: float(term) for task, term in terms.items()})
    2.5 {'click': 2.0, 'buy': 0.5}
    """
    if not values:
        raise ValueError("combine: values has no task; give the values of at least one")
    tasks, weights, indicators = tasks or {}, weights or {}, indicators or {}
    for argument, given in (("tasks", tasks), ("weights", weights), ("indicators", indicators)):
        for task in given:
            if task not in values:
                raise ValueError(f"combine: {argument} names the task '{task}': {nearest(task, values)}")
    terms = {
        task: _term(task, of_task, tasks.get(task, TaskWeights()), weights.get(task), indicators.get(task))
        for task, of_task in values.items()
    }
    return jnp.sum(jnp.stack(list(terms.values()))), terms


def _term(
    name: str, values: ArrayLike, task: TaskWeights, weights: ArrayLike | None, indicator: ArrayLike | None
) -> jax.Array:
    if indicator is None and task.has_space:
        raise ValueError(
            f"combine: the task '{name}' has task-space weights (in {task.in_task_space_weight}, "
            f"out {task.out_task_space_weight}) but no indicator; add indicators['{name}']"
        )
    values = checks.floating("combine", f"values['{name}']", values)
    if weights is not None:
        weights = jnp.asarray(weights)
        checks.shape("combine", f"weights['{name}']", weights, values.shape, "that of the task's values")
    if indicator is not None:
        indicator = jnp.asarray(indicator)
        checks.shape("combine", f"indicators['{name}']", indicator, values.shape, "that of the task's values")
        of_space = jnp.where(indicator > 0, task.in_task_space_weight, task.out_task_space_weight)
        weights = of_space if weights is None else weights * of_space
    return task.weight * reduce(values, weights)


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
