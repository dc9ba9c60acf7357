"""`Task`: one thing to predict, as the functions of this room see it. `sparrow.config.Task` is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sparrow.losses import Loss, Platt, TaskWeights
from sparrow.metrics import Metric

Arrays = Mapping[str, Any]
"""The outputs of a model, or the columns of a batch, by name."""


class MetricUse(Protocol):
    """A metric, and the column that it groups by."""

    @property
    def metric(self) -> Metric[Any]:
        """The metric."""

    @property
    def group_by(self) -> str | None:
        """The column whose values group the rows; None: it does not work by group."""


class Task(Protocol):
    """One thing to predict: its label, losses and metrics, and the columns of weights."""

    @property
    def label(self) -> str:
        """The column that holds the label."""

    @property
    def losses(self) -> Sequence[Loss]:
        """The losses whose sum is minimized; the first one describes the prediction."""

    @property
    def metrics(self) -> Sequence[MetricUse]:
        """The metrics of evaluation."""

    @property
    def train_metrics(self) -> Sequence[MetricUse]:
        """The metrics of training."""

    @property
    def weights(self) -> TaskWeights:
        """The weight of the task, in its space and outside of it."""

    @property
    def sample_weight(self) -> str | None:
        """The column that holds the weights of the examples, if any."""

    @property
    def task_space_label(self) -> str | None:
        """The column that is above 0 in the task's space, if any."""

    @property
    def calibrate(self) -> bool:
        """Whether evaluations fit a `Platt` to the predictions."""

    @property
    def calibration(self) -> Platt | None:
        """The scaling of the predictions, if any."""
