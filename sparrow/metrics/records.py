"""The registry of metrics: a metric's record is the metric itself, a frozen dataclass of plain options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from sparrow.metrics.protocol import Metric
from sparrow.registry import Registry

DESCRIPTIONS: Final = {
    "add_origin": "Whether the curve begins in the origin.",
    "average": "How the values of groups or classes are averaged.",
    "bins": "The number of bins of predictions.",
    "decay_rate": "The factor of older batches.",
    "decay_step": "The number of updates between two decays.",
    "epsilon": "A small number in the denominator.",
    "eta": "The smallest distance of a prediction from 0 and 1.",
    "from_logits": "Whether predictions are logits instead of probabilities.",
    "gain": "The gain of a label.",
    "in_batch": "Whether pairs are of examples of one batch.",
    "max_pairs": "The largest number of pairs that are drawn.",
    "metric": "The metric that is computed.",
    "num_classes": "The number of classes.",
    "sample_ratio": "The share of all pairs that is drawn; None counts every pair.",
    "seed": "The seed of the draw.",
    "threshold": "The prediction from which on a class is predicted.",
    "thresholds": "The number of thresholds at which the curve is known.",
    "top_k": "The number of best predictions that count.",
}


MetricClass = TypeVar("MetricClass", bound=type[Any])

registry: Registry[Metric[Any]] = Registry("metric", Metric, descriptions=DESCRIPTIONS)


def register_metric(name: str) -> Callable[[MetricClass], MetricClass]:
    """Class decorator: makes a metric available to configs under ``name``.

    >>> registry.to_dict(registry.make("auc", thresholds=100))["thresholds"]
    100
    """
    return registry.register(name)
