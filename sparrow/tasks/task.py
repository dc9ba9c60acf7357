"""`Task`: one thing to predict, as the functions here see it: its outputs, labels and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import jax

from sparrow.feed import CANDIDATES, IS_EXAMPLE, NEGATIVE_LOG_Q
from sparrow.losses import Loss, Platt, Positions, TaskWeights, Towers
from sparrow.metrics import Metric
from sparrow.registry import nearest

Arrays = Mapping[str, Any]
"""The outputs of a model, or the columns of a batch, by name."""


class MetricUse(Protocol):
    """A metric, and the column whose values group the rows; None: it does not work by group."""

    @property
    def metric(self) -> Metric[Any]: ...
    @property
    def group_by(self) -> str | None: ...


class Task(Protocol):
    """One thing to predict: its label, losses and metrics, and the columns of weights.

    Attributes:
      label: the column that holds the label.
      losses: the losses whose sum is minimized; the first one describes the prediction.
      metrics: the metrics of evaluation.
      train_metrics: the metrics of training.
      weights: the weight of the task, in its space and outside of it.
      sample_weight: the column that holds the weights of the examples, if any.
      task_space_label: the column that is above 0 in the task's space, if any.
      calibration: the scaling of the predictions, if any.
    """

    @property
    def label(self) -> str: ...
    @property
    def losses(self) -> Sequence[Loss]: ...
    @property
    def metrics(self) -> Sequence[MetricUse]: ...
    @property
    def train_metrics(self) -> Sequence[MetricUse]: ...
    @property
    def weights(self) -> TaskWeights: ...
    @property
    def sample_weight(self) -> str | None: ...
    @property
    def task_space_label(self) -> str | None: ...
    @property
    def calibration(self) -> Platt | None: ...


POSITIONS: Final = "positions"
"""The output of a model that learns from every position of a history: `sparrow.losses.Positions`."""


def read_output(name: str, loss: Loss, outputs: Arrays, columns: Arrays) -> Any:
    """Return the output that a loss of the task ``name`` reads: an array, two towers, or all where it names some."""
    if not loss.is_matching:
        return outputs if loss.outputs else pick("output", outputs, name if name in outputs else "logits")
    if POSITIONS in outputs:
        positions: Positions = outputs[POSITIONS]
        return positions._replace(negative_log_q=columns.get(NEGATIVE_LOG_Q))
    query, item = pick("output", outputs, "query"), pick("output", outputs, "item")
    return Towers(query, item, outputs.get("negatives"), *map(columns.get, CANDIDATES))


def pick(kind: str, arrays: Arrays, name: str) -> Any:
    """Return the array of that name; ``kind`` is the word for it in the error."""
    if name not in arrays:
        raise ValueError(f"the losses need the {kind} '{name}': {nearest(name, arrays)}")
    return arrays[name]


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
