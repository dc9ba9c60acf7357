"""Areas under curves without bins: ExactAUC and ExactPRAUC. They keep every row, on the host, and count them sorted."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparrow.kernels.areas import binary_rows
from sparrow.metrics.inputs import BINARY, missing_class
from sparrow.metrics.order import Codes, float_codes, order_by, running_before, starts
from sparrow.metrics.protocol import Result, register_metric
from sparrow.metrics.rows import Columns, RowMetric, length


class BinaryRowMetric(RowMetric):
    """An exact metric of scores of any scale and labels 0 or 1."""

    _label_domain = BINARY
    _label_dtype = np.dtype(np.bool_)

    def _read(self, predictions: Any, labels: Any, weights: Any, groups: Any) -> tuple[Columns, NDArray[Any]]:
        made = binary_rows(predictions, labels, weights, groups) if self.needs_groups == (groups is not None) else None
        return super()._read(predictions, labels, weights, groups) if made is None else made


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
        positive, negative, area = (float(of_group[0]) for of_group in roc_areas(count_scores(columns)))
        reason = None if positive and negative else f"{self.name}: {missing_class(positive, negative)}"
        return Result(area, reason, {"positive": positive, "negative": negative})


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
        counts = count_scores(columns)
        if not counts.positive.any():
            return Result(float("nan"), f"{self.name}: {missing_class(0, length(columns))}", {})
        true_positives, false_positives = (  # from the highest score down
            np.cumsum(column[::-1], dtype=np.float64) for column in (counts.positive, counts.negative)
        )
        precision = true_positives / (true_positives + false_positives)
        found = counts.positive[::-1]
        return Result(float((found * precision).sum() / true_positives[-1]), None, {})


Counts = NDArray[Any]  # int64 without weights, float64 with


class ScoreCounts(NamedTuple):
    """The weight of the rows with one score in one group; by group, then ascending score."""

    positive: Counts  # (scores,)
    negative: Counts  # (scores,)
    group_starts: NDArray[np.int64]  # (groups,) where a group's scores begin


def count_scores(columns: Columns, groups: Codes | None = None) -> ScoreCounts:
    """Sorts the rows; ``groups`` are codes below 2**31, or None for one group."""
    scores = float_codes(columns["prediction"])
    if "weight" not in columns:
        return _count_rows(scores, columns["label"], groups)
    if groups is None:
        groups = np.zeros(scores.size, np.uint32)
    order = order_by(groups, scores)
    groups = groups[order]
    weight = columns["weight"][order].astype(np.float64)
    positive = np.where(columns["label"][order], weight, 0.0)
    first = starts(groups, scores[order])
    return ScoreCounts(
        np.add.reduceat(positive, first), np.add.reduceat(weight - positive, first), starts(groups[first])
    )


def _count_rows(scores: Codes, labels: NDArray[np.bool_], groups: Codes | None) -> ScoreCounts:
    """Return the same without weights: group, score and label fit into 64 bits, so one plain sort does everything."""
    packed = np.zeros(scores.size, np.uint64) if groups is None else groups.astype(np.uint64)
    packed <<= np.uint64(32)
    packed |= scores
    packed <<= np.uint64(1)
    packed |= labels
    packed.sort()
    positive_before = np.zeros(scores.size + 1, np.int64)
    np.cumsum(packed.astype(np.uint8) & np.uint8(1), out=positive_before[1:])
    packed >>= np.uint64(1)
    first = starts(packed)
    positive = np.diff(positive_before[first], append=positive_before[-1])
    rows = np.diff(first, append=scores.size)
    group_starts = starts(packed[first] >> np.uint64(32))
    return ScoreCounts(positive, rows - positive, group_starts)


class GroupAreas(NamedTuple):
    """Per group: the weight of its positive and negative rows, and the area under its ROC curve (or NaN)."""

    positive: NDArray[np.float64]
    negative: NDArray[np.float64]
    area: NDArray[np.float64]


def roc_areas(counts: ScoreCounts) -> GroupAreas:
    """``area = sum over positive rows of (negative weight below + half of that tied) / (positive * negative)``."""
    below = running_before(counts.negative, counts.group_starts)
    below *= 2
    below += counts.negative
    below *= counts.positive
    twice_area, positive, negative = (
        np.add.reduceat(column, counts.group_starts).astype(np.float64)
        for column in (below, counts.positive, counts.negative)
    )
    pairs = positive * negative
    area = np.full(pairs.shape, np.nan)
    np.divide(twice_area, 2 * pairs, out=area, where=pairs > 0)
    return GroupAreas(positive, negative, area)
