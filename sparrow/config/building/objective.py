"""What the tasks of a config ask for: the total loss of a batch, and the metrics by name."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping
from typing import Any, Final

import jax

from sparrow import losses
from sparrow.config.loading.plain import plain
from sparrow.config.sections.tasks import Task
from sparrow.metrics import Metric
from sparrow.registry import nearest

Arrays = Mapping[str, Any]

POSITIVE_IDS: Final = "<ids of the items chosen>"
NEGATIVE_IDS: Final = "<ids of the items drawn>"
"""Beside the columns of a batch with negatives; no column has such names."""


def total_loss(tasks: Mapping[str, Task], outputs: Arrays, columns: Arrays) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The sum over tasks of their weighted mean losses, and its terms.

    Args:
      tasks: the section ``tasks`` of a config.
      outputs: what the model gave: the logits of each task under its name, or under "logits" where there is one task;
        query, item (and negatives) of a model with two towers.
      columns: labels, sample weights, sessions and task spaces, by the names of their columns.

    >>> import jax.numpy as jnp
    >>> tasks = {"click": Task(label="clicked", losses=["binary_cross_entropy"], weight=2.0)}
    >>> total, terms = total_loss(tasks, {"logits": jnp.zeros(4)}, {"clicked": jnp.ones(4)})
    >>> print(f"{total:.4f}")
    1.3863
    """
    values = {
        name: functools.reduce(operator.add, (_values(name, task, loss, outputs, columns) for loss in task.losses))
        for name, task in tasks.items()
    }
    return losses.combine(
        values,
        {name: task.weights for name, task in tasks.items()},
        weights=_columns_of(tasks, "sample_weight", columns),
        indicators=_columns_of(tasks, "task_space_label", columns),
    )


def _values(name: str, task: Task, loss: losses.Loss, outputs: Arrays, columns: Arrays) -> jax.Array:
    """One value per example."""
    for part in loss.outputs:
        pick("output", outputs, part)
    output = read_output(name, loss, outputs, columns)
    labels = None if loss.label_kind == "none" or loss.is_matching else pick("column", columns, task.label)
    return loss.values(output, labels, [pick("column", columns, key) for key in loss.key_columns])


def read_output(name: str, loss: losses.Loss, outputs: Arrays, columns: Arrays) -> Any:
    """The output that a loss of the task ``name`` reads: an array, or the two towers."""
    if not loss.is_matching:
        return pick("output", outputs, name if name in outputs else "logits")
    query, item = pick("output", outputs, "query"), pick("output", outputs, "item")
    return losses.Towers(query, item, outputs.get("negatives"), columns.get(POSITIVE_IDS), columns.get(NEGATIVE_IDS))


def _columns_of(tasks: Mapping[str, Task], field: str, columns: Arrays) -> dict[str, Any]:
    named = {name: getattr(task, field) for name, task in tasks.items()}
    return {name: pick("column", columns, column) for name, column in named.items() if column is not None}


def pick(kind: str, arrays: Arrays, name: str) -> Any:
    """The array of that name; ``kind`` is the word for it in the error."""
    if name not in arrays:
        raise ValueError(f"the losses need the {kind} '{name}': {nearest(name, arrays)}")
    return arrays[name]


@dataclasses.dataclass(frozen=True)
class TaskMetric:
    """A metric of a task: of which task, and the column that it groups by."""

    task: str
    metric: Metric[Any]
    group_by: str | None


def named_metrics(tasks: Mapping[str, Task], *, train: bool = False) -> dict[str, TaskMetric]:
    """The metrics of all tasks, by the names that logs and results use.

    A name is the metric's, with the options that are not its defaults; with several tasks, the task's name before it.

    >>> task = Task(label="clicked", losses=["l2"], metrics=["mae", {"name": "recall_at_k", "top_k": 1}])
    >>> list(named_metrics({"rating": task}))
    ['mae', 'recall_at_k(top_k=1)']
    """
    named = {}
    for name, task in tasks.items():
        for use in task.train_metrics if train else task.metrics:
            written = _call(plain(use))
            named[f"{name}/{written}" if len(tasks) > 1 else written] = TaskMetric(name, use.metric, use.group_by)
    return named


def _call(written: Any) -> str:
    """A record as short text: ``name(option=value)``."""
    if not isinstance(written, Mapping):
        return str(written)
    options = ", ".join(f"{key}={_call(value)}" for key, value in written.items() if key != "name")
    return f"{written['name']}({options})"
