"""The prediction of a task, for metrics and for users: the first loss of the task describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import jax

from sparrow.data import CANDIDATES
from sparrow.losses import Towers
from sparrow.tasks.candidates import by_candidate
from sparrow.tasks.task import Arrays, Task, read_output

TOWERS: Final = {"user": "query", "item": "item"}
"""The towers of a matching model, as configs and users call them, and the outputs that hold their vectors."""


def vector_column(tower: str) -> str:
    """Return the column of a tower's vectors among the predictions.

    >>> vector_column("user")
    'user_vector'
    """
    return f"{tower}_vector"


def is_matching(task: Task) -> bool:
    """Return whether the task is learned by two towers, whose outputs are vectors."""
    return task.losses[0].is_matching


def predicted(name: str, task: Task, outputs: Arrays) -> jax.Array:
    """Return the prediction for each example: (batch,), or (batch, classes); for two towers, the score of its own item.

    >>> import jax.numpy as jnp
    >>> from sparrow.config import Task
    >>> task = Task(label="clicked", losses=["binary_cross_entropy"])
    >>> predicted("click", task, {"logits": jnp.zeros(2)}).tolist()
    [0.5, 0.5]
    """
    loss = task.losses[0]
    made = loss.prediction(read_output(name, loss, outputs, {}))
    return made if task.calibration is None else task.calibration(made)


def predictions(tasks: Mapping[str, Task], outputs: Arrays) -> dict[str, jax.Array]:
    """Return all outputs for users, by column: each task's prediction by its name and, for two towers, their vectors.

    A prediction has the name of its task everywhere: in files, in services and in Python. Of several candidates there
    are ``(batch, most candidates)`` predictions, and their number as `sparrow.data.CANDIDATES`.
    """
    made = {}
    flat, _ = by_candidate(tasks, outputs, {})
    for name in tasks:
        made[name] = predicted(name, tasks[name], flat)
        if CANDIDATES in outputs:
            batch = outputs[CANDIDATES].shape[0]
            made[name] = made[name].reshape(batch, -1, *made[name].shape[1:])
            made[CANDIDATES] = outputs[CANDIDATES]
        if is_matching(tasks[name]):
            rows = outputs[TOWERS["user"]].shape[0]
            made |= {vector_column(tower): outputs[output][:rows] for tower, output in TOWERS.items()}
    if TOWERS["user"] in outputs and vector_column("user") not in made:  # a model of codes has users' vectors alone
        made[vector_column("user")] = outputs[TOWERS["user"]]
    return made


def meaning(task: Task) -> str:
    """Return the meaning of the numbers of `predicted`, in words."""
    return task.losses[0].meaning


def judged(name: str, task: Task, outputs: Arrays, columns: Arrays) -> tuple[jax.Array, jax.Array]:
    """Return predictions and labels as metrics take them.

    For two towers these are lists: the scores of all candidates of a query, and which of them it chose. A loss without
    a label defines both.

    >>> import jax.numpy as jnp
    >>> from sparrow.config import Task
    >>> task = Task(label="clicked", losses=["in_batch_softmax"])
    >>> scores, chosen = judged("match", task, {"query": jnp.eye(2), "item": jnp.eye(2)}, {})
    >>> scores.tolist(), chosen.tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [0, 1])
    """
    if not is_matching(task):
        if not task.losses[0].reads_label:
            return task.losses[0].compared(outputs)
        return predicted(name, task, outputs), columns[task.label]
    towers: Towers = read_output(name, task.losses[0], outputs, columns)
    return towers.ranked()
