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
from sparrow.losses.reduction import reduce
from sparrow.registry import answering, nearest


@dataclasses.dataclass(frozen=True)
class TaskWeights:
    """How much one task counts in the total, and on which examples.

    Attributes:
      weight: the factor of the task's mean loss.
      in_task_space_weight: the weight of the examples of the task's space, those whose indicator is above 0.
      out_task_space_weight: the weight of the others.
    """

    weight: float = 1.0
    in_task_space_weight: float = 1.0
    out_task_space_weight: float = 1.0

    def __post_init__(self) -> None:
        fields.numbers_of(self, *(field.name for field in dataclasses.fields(self)), at_least=0)

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
