"""`Scores`: the metrics of all tasks, those of fixed size inside jitted functions, the exact ones on the host."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from sparrow.config import ConfigError, Problem, Task, TaskMetric, named_metrics
from sparrow.runs.predictions import judged

Arrays = Mapping[str, Any]
States = dict[str, Any]


class Scores:
    """Metrics by name. Their states are kept by the caller: `device` ones travel through jitted functions."""

    def __init__(self, tasks: Mapping[str, Task], *, train: bool = False) -> None:
        self.tasks = tasks
        self.metrics: dict[str, TaskMetric] = named_metrics(tasks, train=train)
        self.device = {name: use for name, use in self.metrics.items() if use.metric.jittable}
        self.host = {name: use for name, use in self.metrics.items() if not use.metric.jittable}
        for name, use in self.host.items() if train else ():
            path = ("tasks", use.task, "train_metrics")
            raise ConfigError(
                [
                    Problem(
                        path, f"{name} keeps every row, which a step cannot; move it to metrics, or use auc, mae, ..."
                    )
                ]
            )

    def init(self) -> States:
        """The states of the metrics that run on the device."""
        # Copied: steps are given the states for good, and one array may stand in a fresh state twice.
        return {name: jax.tree.map(jnp.copy, use.metric.init()) for name, use in self.device.items()}

    def init_host(self) -> States:
        """The states of the others."""
        return {name: use.metric.init() for name, use in self.host.items()}

    def update(self, states: States, outputs: Arrays, columns: Arrays) -> States:
        """The states with one more batch; runs inside jitted functions."""
        # One task's predictions serve all its metrics.
        of = functools.cache(lambda task: judged(task, self.tasks[task], outputs, columns))
        return {
            name: use.metric.update(states[name], *of(use.task), weights=self._weights(use, columns))
            for name, use in self.device.items()
        }

    def for_host(self, outputs: Arrays, columns: Arrays) -> dict[str, tuple[jax.Array, jax.Array, Any]]:
        """By task: predictions, labels and weights, for `update_host`; runs inside jitted functions."""
        uses = {use.task: use for use in self.host.values()}
        return {
            task: (*judged(task, self.tasks[task], outputs, columns), self._weights(use, columns))
            for task, use in uses.items()
        }

    def update_host(self, states: States, arrays: Mapping[str, Any], keys: Arrays) -> States:
        """The states of the exact metrics with one more batch."""
        new = {}
        for name, use in self.host.items():
            predictions, labels, weights = arrays[use.task]
            groups = {} if use.group_by is None else {"groups": keys[use.group_by]}
            try:
                new[name] = use.metric.update(states[name], predictions, labels, weights=weights, **groups)
            except (ValueError, TypeError) as error:  # predictions of a shape that the metric does not judge
                raise ConfigError([Problem(("tasks", use.task, "metrics"), str(error))]) from None
        return new

    def compute(self, states: States) -> dict[str, float]:
        """The numbers; NaN where a metric is not defined."""
        return {name: float(use.metric.compute(states[name])) for name, use in self.metrics.items() if name in states}

    def _weights(self, use: TaskMetric, columns: Arrays) -> Any:
        column = self.tasks[use.task].sample_weight
        return None if column is None else columns[column]
