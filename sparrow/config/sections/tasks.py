"""The section ``tasks`` of a config: labels, losses and metrics."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from sparrow.config.loading.section import Section
from sparrow.config.sections.train import Name
from sparrow.fields import NotNegative, Share
from sparrow.losses import Loss, Platt, TaskWeights
from sparrow.metrics import Metric, RankingMetric
from sparrow.metrics import registry as METRICS
from sparrow.registry import NOT_EMPTY


class MetricUse(Section):
    """A metric, and the column that it groups by.

    >>> MetricUse(name="grouped_auc", group_by="user").metric
    GroupedAUC(average='uniform')
    """

    metric: Metric[Any]
    """The metric's name, or a mapping with its name and options."""
    group_by: Name | None = None
    """The column to group rows by, for metrics by group and ranking metrics: the rows of a group are one list."""

    @classmethod
    def as_fields(cls, value: Any) -> Any:
        """Read the form that configs use: the metric's own, with group_by among its options."""
        if not isinstance(value, dict):
            return {"metric": METRICS.read(value)}
        if "name" not in value:
            return value
        metric = METRICS.read({key: item for key, item in value.items() if key != "group_by"})
        return {"metric": metric, **{key: value[key] for key in value.keys() & {"group_by"}}}

    def written(self, fields: dict[str, Any]) -> Any:
        """Write the form that configs use: the metric's own, with group_by among its options."""
        metric, group_by = fields["metric"], fields.get("group_by")
        if group_by is None:
            return metric
        return {**({"name": metric} if isinstance(metric, str) else metric), "group_by": group_by}

    def _check(self) -> None:
        if self.metric.needs_groups and self.group_by is None:
            raise ValueError(f"{self.metric.name} works by group; add group_by, the column to group by")
        may_group = self.metric.needs_groups or isinstance(self.metric, RankingMetric)
        if self.group_by is not None and not may_group:
            raise ValueError(f"{self.metric.name} does not work by group; remove group_by '{self.group_by}'")


class Task(Section):
    """One thing to predict."""

    label: str = ""
    """The column that holds the label. Losses of two towers need none, and reconstruction neither."""
    losses: Annotated[tuple[Loss, ...], NOT_EMPTY]
    """The losses; their sum is minimized."""
    metrics: tuple[MetricUse, ...] = ()
    """The metrics of evaluation."""
    train_metrics: tuple[MetricUse, ...] = ()
    """The metrics of training batches, logged while it runs."""
    weight: NotNegative = 1.0
    """The factor of the task's loss in the total."""
    sample_weight: Name | None = None
    """The column that holds the weights of the examples."""
    task_space_label: Name | None = None
    """The column that marks the examples in the task's space: values above 0."""
    in_task_space_weight: NotNegative = 1.0
    """The weight of the examples in the task's space."""
    out_task_space_weight: NotNegative = 1.0
    """The weight of the other examples."""

    pareto_min_loss_weight: Share = 0.0
    """The least weight of the task with train.pareto_loss_weights."""
    calibrate: bool = False
    """Whether probabilities are scaled (Platt) so that they are right on the data to evaluate on."""
    _calibration: Platt | None = dataclasses.field(default=None, init=False, repr=False)

    def _check(self) -> None:
        if not self.label and any(loss.reads_label for loss in self.losses):
            raise ValueError(
                "label is required, the column that holds the label; only two towers and reconstruction need none"
            )
        if self.weights.has_space and self.task_space_label is None:
            raise ValueError("task-space weights need task_space_label, the column that marks the task's space")
        if self.calibrate and not self.losses[0].is_probability:
            raise ValueError("calibrate needs a first loss of probabilities, such as binary_cross_entropy")

    @property
    def calibration(self) -> Platt | None:
        """The scaling of the predictions, which a trained run holds."""
        return self._calibration

    def calibrated(self, platt: Platt) -> Task:
        """Return the task with its predictions scaled."""
        return self.model_copy({"_calibration": platt})

    @property
    def weights(self) -> TaskWeights:
        """The task's weights, as `sparrow.losses.combine` takes them."""
        return TaskWeights(self.weight, self.in_task_space_weight, self.out_task_space_weight)
