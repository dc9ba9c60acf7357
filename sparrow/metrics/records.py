"""The registry of metrics: a metric's record is the metric itself, a frozen dataclass of plain options."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sparrow.metrics.protocol import Metric
from sparrow.registry import Registry

MetricClass = TypeVar("MetricClass", bound=type[Any])


class MetricRegistry(Registry[Metric[Any]]):
    """A registry whose records may hold other records, as ``Decayed(metric=MAE())`` does."""

    def to_dict(self, record: Metric[Any]) -> dict[str, Any]:
        """``{"name": ..., **fields}``; a metric inside the record becomes a mapping of its own."""
        fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}  # type: ignore[arg-type]
        if not any(isinstance(value, Metric) for value in fields.values()):
            return super().to_dict(record)
        plain = {key: self.to_dict(v) if isinstance(v, Metric) else v for key, v in fields.items()}
        return {"name": self.name_of(record), **plain}

    def make(self, name: str, /, **fields: Any) -> Metric[Any]:
        """Builds the record ``name``; a field that is written as a metric becomes that metric."""
        built = {
            key: self.from_dict(value) if isinstance(value, Mapping) and "name" in value else value
            for key, value in fields.items()
        }
        return super().make(name, **built)


registry = MetricRegistry("metric")


def register_metric(name: str) -> Callable[[MetricClass], MetricClass]:
    """Class decorator: makes a metric available to configs under ``name``.

    >>> registry.to_dict(registry.make("auc", thresholds=100))["thresholds"]
    100
    """
    return registry.register(name)
