"""Areas under curves without bins: ExactAUC and ExactPRAUC. They keep every row, on the host."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparrow.metrics.inputs import BINARY, Domain
from sparrow.metrics.protocol import Result
from sparrow.metrics.records import register_metric
from sparrow.metrics.rows import Columns, RowMetric, length
from sparrow.metrics.score_counts import count_scores, roc_areas


class BinaryRowMetric(RowMetric):
    """An exact metric of scores of any scale and labels 0 or 1."""

    @property
    def _label_domain(self) -> Domain:
        return BINARY

    def _stored_labels(self, labels: NDArray[Any]) -> NDArray[Any]:
        positive: NDArray[np.bool_] = labels == 1
        return positive


def why_not_two_classes(name: str, positive: float, negative: float) -> str | None:
    """Return the reason when a class is missing."""
    if positive and negative:
        return None
    if not positive and not negative:
        return f"{name}: no rows, or all their weights are 0"
    return f"{name}: no {'negative' if positive else 'positive'} labels"


@register_metric("exact_auc")
@dataclasses.dataclass(frozen=True)
class ExactAUC(BinaryRowMetric):
    """Area under the ROC curve, exact: the weighted share of (positive, negative) pairs in the right order.

    ``sum_i sum_j w_i w_j ([p_i > p_j] + [p_i = p_j] / 2) / (P N)``, ``i`` over positive and ``j`` over negative
    rows. Scores may have any scale: only their order counts. Keeps every row on the host (5 bytes per row for
    float32 scores, 4 or 8 more with weights): feed it outside of ``jax.jit``. One sort, O(n log n).

    >>> metric = ExactAUC()
    >>> metric.compute(metric.update(metric.init(), [0.1, 0.4, 0.4, 0.8], [0, 0, 1, 1]))
    0.875
    """

    def _evaluate(self, columns: Columns) -> Result:
        if not length(columns):
            return Result(float("nan"), why_not_two_classes(self.name, 0, 0), {})
        areas = roc_areas(count_scores(columns))
        positive, negative = float(areas.positive[0]), float(areas.negative[0])
        reason = why_not_two_classes(self.name, positive, negative)
        return Result(float(areas.area[0]), reason, {"positive": positive, "negative": negative})


@register_metric("exact_pr_auc")
@dataclasses.dataclass(frozen=True)
class ExactPRAUC(BinaryRowMetric):
    """Average precision, exact: ``sum_t (R(t) - R(t above)) * P(t)`` over the distinct scores ``t``, highest first.

    The definition of scikit-learn's ``average_precision_score``. Keeps every row on the host, as `ExactAUC`.

    >>> metric = ExactPRAUC()
    >>> round(metric.compute(metric.update(metric.init(), [0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])), 6)
    0.833333
    """

    def _evaluate(self, columns: Columns) -> Result:
        counts = count_scores(columns) if length(columns) else None
        if counts is None or not counts.positive.any():
            return Result(float("nan"), why_not_two_classes(self.name, 0, length(columns)), {})
        true_positives, false_positives = (  # from the highest score down
            np.cumsum(column[::-1], dtype=np.float64) for column in (counts.positive, counts.negative)
        )
        precision = true_positives / (true_positives + false_positives)
        found = counts.positive[::-1]
        return Result(float((found * precision).sum() / true_positives[-1]), None, {})
