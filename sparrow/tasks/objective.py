"""The total loss of a batch: the sum over tasks, each with its weights."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from sparrow import losses
from sparrow.models import extra_losses
from sparrow.tasks.candidates import by_candidate, by_position
from sparrow.tasks.task import Arrays, Task, pick, read_output, sample_weights


def total_loss(tasks: Mapping[str, Task], outputs: Arrays, columns: Arrays) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the sum over tasks of their weighted mean losses, plus the model's own losses, and its terms.

    The model's own losses are outputs whose names begin with ``loss/``: one value per example, weighted by the sample
    weights of the first task, or one number.

    Args:
      tasks: the section ``tasks`` of a config.
      outputs: the outputs of the model: the logits of each task under its name, or under "logits" for one task;
        query, item (and negatives) of a model with two towers. With `sparrow.data.CANDIDATES`, a
        number per example, the logits are those of several candidates, and the mean is over all of them. With
        `POSITIONS`, the losses of two towers are the mean over all elements of the histories.
      columns: labels, sample weights, sessions and task spaces, by the names of their columns; `IS_EXAMPLE` where the
        batch may be padded.

    >>> import jax.numpy as jnp
    >>> from sparrow.config import Task
    >>> tasks = {"click": Task(label="clicked", losses=["binary_cross_entropy"], weight=2.0)}
    >>> total, terms = total_loss(tasks, {"logits": jnp.zeros(4)}, {"clicked": jnp.ones(4)})
    >>> print(f"{total:.4f}")
    1.3863
    """
    flat, rows = by_candidate(tasks, outputs, columns)
    rows = by_position(tasks, outputs, rows)
    values = {
        name: functools.reduce(operator.add, (_values(name, task, loss, flat, rows) for loss in task.losses))
        for name, task in tasks.items()
    }
    total, terms = losses.combine(
        values,
        {name: task.weights for name, task in tasks.items()},
        weights={name: held for name, task in tasks.items() if (held := sample_weights(task, rows)) is not None},
        indicators={
            name: pick("column", rows, task.task_space_label)
            for name, task in tasks.items()
            if task.task_space_label is not None
        },
    )
    extra = _model_losses(tasks, outputs, columns)
    return functools.reduce(operator.add, extra.values(), total), terms | extra


def _model_losses(tasks: Mapping[str, Task], outputs: Arrays, columns: Arrays) -> dict[str, jax.Array]:
    """Return the mean of each loss that the model computes by itself, by its name."""
    weights = sample_weights(next(iter(tasks.values())), columns)
    found = extra_losses(outputs)
    for name in found:
        if name in tasks:
            raise ValueError(f"the task '{name}' has the name of one of the model's own losses; rename the task")
    return {
        name: losses.reduce(values, weights) if values.ndim else jnp.asarray(values, jnp.float32)
        for name, values in found.items()
    }


def _values(name: str, task: Task, loss: losses.Loss, outputs: Arrays, columns: Arrays) -> jax.Array:
    """Return one value per example."""
    for part in loss.outputs:
        pick("output", outputs, part)
    output = read_output(name, loss, outputs, columns)
    labels = pick("column", columns, task.label) if loss.reads_label else None
    return loss.values(output, labels, [pick("column", columns, key) for key in loss.key_columns])
