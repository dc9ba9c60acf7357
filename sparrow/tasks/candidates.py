"""Several candidates of an example, or positions of its history, as rows of their own, for losses and metrics."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from sparrow.data import CANDIDATES
from sparrow.feed import IS_EXAMPLE
from sparrow.losses import Positions
from sparrow.tasks.task import POSITIONS, Arrays, Task, count_examples


def by_candidate(tasks: Mapping[str, Task], outputs: Arrays, columns: Arrays) -> tuple[Arrays, Arrays]:
    """Return outputs and columns with one row per candidate; unchanged unless the model ranks several.

    Columns of the example, such as weights and sessions, are repeated for its candidates. Padding has weight 0 and a
    session of its own, so that it is in no loss and no metric.

    >>> from sparrow.config import Task
    >>> from sparrow.tasks.task import sample_weights
    >>> tasks = {"click": Task(label="clicked", losses=["binary_cross_entropy"])}
    >>> outputs = {"click": jnp.array([[1.0, 2.0], [3.0, 0.0]]), CANDIDATES: jnp.array([2, 1])}
    >>> outputs, columns = by_candidate(tasks, outputs, {"clicked": jnp.array([[0.0, 1.0], [1.0, 0.0]])})
    >>> outputs["click"].tolist(), columns["clicked"].tolist(), sample_weights(tasks["click"], columns).tolist()
    ([1.0, 2.0, 3.0, 0.0], [0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0])
    """
    if CANDIDATES not in outputs:
        return outputs, columns
    read = [name for name in (*tasks, "logits") if name in outputs]
    most = outputs[read[0]].shape[1]
    present = (jnp.arange(most) < outputs[CANDIDATES][:, None]).reshape(-1)
    flat = {name: outputs[name].reshape(-1, *outputs[name].shape[2:]) for name in read}
    labels = {column for task in tasks.values() for column in (task.label, task.task_space_label) if column}
    weights = {task.sample_weight for task in tasks.values()}
    made: dict[str, jax.Array] = {}
    for name, values in columns.items():
        if name in labels:
            made[name] = _of_candidates(name, values, most)
        elif values.ndim == 1 and name in weights:
            made[name] = jnp.where(present, jnp.repeat(values, most), 0)
        elif values.ndim == 1:
            made[name] = jnp.where(present, jnp.repeat(values, most), -1 - jnp.arange(len(present)))
    return {**outputs, **flat}, {**columns, **made, IS_EXAMPLE: present.astype(jnp.float32)}


def _of_candidates(name: str, labels: jax.Array, most: int) -> jax.Array:
    if labels.ndim != 2 or labels.shape[1] != most:
        raise ValueError(
            f"the label '{name}' must have shape (batch, {most}), a number for each candidate, got {labels.shape}"
        )
    return labels.reshape(-1)


def by_position(tasks: Mapping[str, Task], outputs: Arrays, columns: Arrays) -> Arrays:
    """Return the columns with one row per position of a history; unchanged unless the model learns from each."""
    if POSITIONS not in outputs:
        return columns
    positions: Positions = outputs[POSITIONS]
    names = [column for task in tasks.values() for column in (task.sample_weight, task.task_space_label) if column]
    made = {name: columns[name][positions.examples] for name in (*names, IS_EXAMPLE) if name in columns}
    return {**columns, **made, IS_EXAMPLE: positions.weights * made.get(IS_EXAMPLE, 1)}


def judged_rows(tasks: Mapping[str, Task], outputs: Arrays, columns: Arrays, size: int) -> jax.Array | int:
    """Return the number of rows that a batch's loss is the mean of: its examples, or all their candidates."""
    return count_examples(by_candidate(tasks, outputs, columns)[1], size)
