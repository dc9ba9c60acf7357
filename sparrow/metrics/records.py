"""The registry of metrics: a metric's record is the metric itself, a frozen dataclass of plain options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sparrow.metrics.descriptions import DESCRIPTIONS
from sparrow.metrics.protocol import Metric
from sparrow.registry import Registry

MetricClass = TypeVar("MetricClass", bound=type[Any])

registry: Registry[Metric[Any]] = Registry("metric", Metric, descriptions=DESCRIPTIONS)


def register_metric(name: str) -> Callable[[MetricClass], MetricClass]:
    """Class decorator: makes a metric available to configs under ``name``.

    >>> registry.to_dict(registry.make("auc", thresholds=100))["thresholds"]
    100
    """
    return registry.register(name)
