"""`Scores`: the metrics of all tasks; metrics of fixed size run inside jitted functions, exact ones on the host."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.errors import ConfigError, Problem
from sparrow.losses import Loss
from sparrow.metrics import AUC, MSE, AverageMetric, ByGroup, Calibration, Metric, NormalizedEntropy, RankingMetric
from sparrow.registry import written
from sparrow.tasks.candidates import by_candidate
from sparrow.tasks.predictions import judged, predicted
from sparrow.tasks.task import Arrays, MetricUse, Task, sample_weights

States = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class TaskMetric:
    """A metric of a task, and the column that it groups by."""

    task: str
    metric: Metric[Any]
    group_by: str | None


def named_metrics(tasks: Mapping[str, Task], *, train: bool = False) -> dict[str, TaskMetric]:
    """Return the metrics of all tasks, by the names that logs and results use.

    A name is the metric's, with the options that are not its defaults; with several tasks, the task's name before it.
    Metrics at K have their K in the name, and metrics by group the column.

    >>> from sparrow.config import Task
    >>> recall = {"name": "recall_at_k", "top_k": 1}
    >>> task = Task(label="clicked", losses=["l2"], metrics=["mae", recall, {**recall, "group_by": "user"}])
    >>> list(named_metrics({"rating": task}))
    ['mae', 'recall_at_1', 'recall_at_1(user)']
    """
    named = {}
    for name, task in tasks.items():
        for use in task.train_metrics if train else task.metrics:
            short = _short(use)
            metric = use.metric
            if use.group_by is not None and isinstance(metric, RankingMetric):
                metric = ByGroup(metric)
            named[f"{name}/{short}" if len(tasks) > 1 else short] = TaskMetric(name, metric, use.group_by)
    return named


WINDOW: Final = "window/"
"""The prefix of the names of window metrics."""


@dataclasses.dataclass(frozen=True)
class LabelMean(AverageMetric):
    """The mean of the labels."""

    def values(self, batch: Any) -> Any:
        return batch.labels


def window_metrics(tasks: Mapping[str, Task]) -> dict[str, TaskMetric]:
    """Return the metrics of a window of batches, by name.

    They are AUC, normalized entropy and calibration where predictions are probabilities, else the mean squared error;
    and the mean of the labels.
    """
    named = {}
    for name, task in tasks.items():
        if task.losses[0].is_matching:  # rows of a batch are compared with each other
            continue
        judges: dict[str, Metric[Any]] = {"mse": MSE()}
        if task.losses[0].is_from_0_to_1:
            judges = {"auc": AUC(), "normalized_entropy": NormalizedEntropy(), "calibration": Calibration()}
        for metric, used in {**judges, "label_rate": LabelMean()}.items():
            short = f"{name}/{metric}" if len(tasks) > 1 else metric
            named[WINDOW + short] = TaskMetric(name, used, None)
    return named


def _short(use: MetricUse) -> str:
    """Return a metric as a string: ``name(column, option=value)``, with the options that are not its defaults."""
    inner = use.metric.metric if isinstance(use.metric, ByGroup) else use.metric
    return _call(written(inner), getattr(inner, "top_k", None), use.group_by)


def _call(written: Any, top_k: int | None = None, group_by: str | None = None) -> str:
    """Return a record as a short string."""
    fields = dict(written) if isinstance(written, Mapping) else {"name": written}
    name = str(fields.pop("name"))
    if top_k is not None and name.endswith("_at_k"):
        fields.pop("top_k", None)
        name = f"{name.removesuffix('k')}{top_k}"
    options = [] if group_by is None else [group_by]
    options += [f"{key}={_call(value)}" for key, value in fields.items()]
    return f"{name}({', '.join(options)})" if options else name


INSTEAD: Final = {"auc": "exact_auc", "pr_auc": "exact_pr_auc", "decayed_auc": "exact_auc"}
"""Metrics that take any score, by the metric of probabilities that they replace."""


def check_predictions(tasks: Mapping[str, Task]) -> None:
    """Refuse a metric of probabilities where the loss describes its predictions as something else."""
    for name, task in tasks.items():
        loss = task.losses[0]
        if loss.is_from_0_to_1 or loss.is_matching:  # two towers: shapes decide
            continue
        for field in ("metrics", "train_metrics"):
            for use in getattr(task, field):
                if use.metric.needs_probabilities:
                    raise ConfigError([Problem(("tasks", name, field), _no_probability(_short(use), loss))])


def _no_probability(metric: str, loss: Loss) -> str:
    other = INSTEAD.get(metric.partition("(")[0])
    instead = "use a metric of scores, such as exact_auc or mae" if other is None else f"use {other}, for any score"
    return (
        f"{metric} needs predictions in [0, 1], and those of {type(loss).__name__} are described as '{loss.meaning}'; "
        f"{instead}, or set is_from_0_to_1 = True in the loss where that is so"
    )


class Scores:
    """Metrics by name. Their states are kept by the caller: `device` ones travel through jitted functions."""

    def __init__(self, tasks: Mapping[str, Task], *, train: bool = False, windows: bool = False) -> None:
        """Take the metrics of training or evaluation; ``windows``: also those of `window_metrics`."""
        self.tasks = tasks
        self.metrics: dict[str, TaskMetric] = named_metrics(tasks, train=train)
        self.metrics |= window_metrics(tasks) if windows else {}
        self.device = {name: use for name, use in self.metrics.items() if use.metric.jittable}
        self.host = {name: use for name, use in self.metrics.items() if not use.metric.jittable}
        for name, use in self.host.items() if train else ():
            text = f"{name} keeps every row, which a step cannot; move it to metrics, or use auc, mae, ..."
            raise ConfigError([Problem(("tasks", use.task, "train_metrics"), text)])

    def init(self) -> States:
        """Return the states of the metrics that run on the device."""
        # Copied: steps donate the states, and a fresh state may hold one array twice.
        return {name: jax.tree.map(jnp.copy, use.metric.init()) for name, use in self.device.items()}

    def init_host(self) -> States:
        """Return the states of the metrics that run on the host."""
        return {name: use.metric.init() for name, use in self.host.items()}

    def update(self, states: States, outputs: Arrays, columns: Arrays) -> States:
        """Return the states with one more batch; runs inside jitted functions."""
        outputs, columns = by_candidate(self.tasks, outputs, columns)
        # One task's predictions serve all its metrics.
        of = functools.cache(lambda task, labels: self.judged(task, labels, outputs, columns))
        return {
            name: use.metric.update(states[name], *of(*_of(use)), weights=sample_weights(self.tasks[use.task], columns))
            for name, use in self.device.items()
        }

    def for_host(self, outputs: Arrays, columns: Arrays) -> dict[tuple[str, bool], tuple[jax.Array, Any, Any]]:
        """Return predictions, labels and weights by task and use, for `update_host`; runs inside jitted functions.

        Rows of padding are still there: the host cuts them off.
        """
        outputs, columns = by_candidate(self.tasks, outputs, columns)
        return {
            of: (*self.judged(*of, outputs, columns), sample_weights(self.tasks[of[0]], columns))
            for of in dict.fromkeys(map(_of, self.host.values()))
        }

    def judged(self, task: str, with_labels: bool, outputs: Arrays, columns: Arrays) -> tuple[jax.Array, Any]:
        """Return predictions and labels; None for labels that a metric does not use."""
        if with_labels:
            return judged(task, self.tasks[task], outputs, columns)
        return predicted(task, self.tasks[task], outputs), None

    def update_host(self, states: States, arrays: Mapping[tuple[str, bool], Any], keys: Arrays) -> States:
        """Return the states of the exact metrics with one more batch."""
        new = {}
        for name, use in self.host.items():
            predictions, labels, weights = arrays[_of(use)]
            groups = {} if use.group_by is None else {"groups": _repeated(keys[use.group_by], len(predictions))}
            try:
                new[name] = use.metric.update(states[name], predictions, labels, weights=weights, **groups)
            except (ValueError, TypeError) as error:  # predictions of a shape that the metric does not take
                raise ConfigError([Problem(("tasks", use.task, "metrics"), str(error))]) from None
        return new

    def rehearse(self, arrays: Mapping[tuple[str, bool], Any]) -> None:
        """Raise `ConfigError` for an exact metric that does not take arrays of these shapes, from `for_host`."""
        zeros = jax.tree.map(lambda array: np.zeros(array.shape, array.dtype), dict(arrays))
        rows = {task: len(predictions) for (task, _), (predictions, *_) in zeros.items()}
        keys = {use.group_by: np.zeros(rows[use.task], np.int64) for use in self.host.values() if use.group_by}
        self.update_host(self.init_host(), zeros, keys)

    def compute(self, states: States) -> dict[str, float]:
        """Return the numbers; NaN where a metric is not defined."""
        return {name: float(use.metric.compute(states[name])) for name, use in self.metrics.items() if name in states}

    def reasons(self, states: States, values: Mapping[str, float]) -> dict[str, str]:
        """Return the reason of each of ``values`` that is NaN, in words."""
        found = {}
        for name, use in self.metrics.items():
            if name in states and math.isnan(values[name]):
                reason = use.metric.reason(states[name]) or "the metric gives no reason"
                found[name] = reason.removeprefix(f"{use.metric.name}: ")
        return found

    def has_faults(self, name: str, states: States) -> bool:
        """Return whether a metric has seen rows that it cannot judge."""
        return bool(self.metrics[name].metric.has_faults(states[name]))


def _of(use: TaskMetric) -> tuple[str, bool]:
    return use.task, use.metric.needs_labels


def _repeated(keys: Any, rows: int) -> Any:
    """Return a key for each row: that of its example, where rows are several candidates of each."""
    return keys if len(keys) in (0, rows) else np.repeat(keys, rows // len(keys))
