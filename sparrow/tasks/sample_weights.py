"""The weights of the examples of a batch: of each task, with 0 for rows of padding."""

from __future__ import annotations

from typing import Any

import jax

from sparrow.feed import IS_EXAMPLE
from sparrow.tasks.outputs import pick
from sparrow.tasks.task import Arrays, Task


def sample_weights(task: Task, columns: Arrays) -> Any:
    """Return one weight per row of a batch; None where all rows count alike.

    >>> import jax.numpy as jnp
    >>> from sparrow.config import Task
    >>> columns = {"weight": jnp.array([2.0, 3.0, 0.0]), IS_EXAMPLE: jnp.array([1.0, 1.0, 0.0])}
    >>> sample_weights(Task(label="y", losses=["l2"], sample_weight="weight"), columns).tolist()
    [2.0, 3.0, 0.0]
    >>> sample_weights(Task(label="y", losses=["l2"]), columns).tolist()
    [1.0, 1.0, 0.0]
    """
    there = columns.get(IS_EXAMPLE)
    if task.sample_weight is None:
        return there
    weights = pick("column", columns, task.sample_weight)
    return weights if there is None else weights * there


def count_examples(columns: Arrays, size: int) -> jax.Array | int:
    """Return the number of examples among ``size`` rows of a batch."""
    there = columns.get(IS_EXAMPLE)
    return size if there is None else there.sum()
