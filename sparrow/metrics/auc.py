"""Areas under curves from a histogram of the predictions: AUC, PR-AUC, multi-class AUC. Fixed size, jittable."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import ModuleType
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sparrow import fields
from sparrow.metrics import sums
from sparrow.metrics.fixed import BinaryMetric, FixedSizeMetric, ratio, weighted
from sparrow.metrics.inputs import BINARY, CheckedRows, Domain, check_equal_shapes, class_index, missing_class
from sparrow.metrics.protocol import register_metric
from sparrow.metrics.sums import Sum


def threshold_values(thresholds: int) -> NDArray[np.float32]:
    """``thresholds`` equally spaced numbers from 0 to 1."""
    return np.linspace(0.0, 1.0, thresholds).astype(np.float32)


def threshold_index(p: jax.Array, thresholds: int) -> jax.Array:
    """Return the largest ``i`` with ``p >= threshold_values(thresholds)[i]``, in constant time per row."""
    values = jnp.asarray(threshold_values(thresholds))
    guess = jnp.clip((p * (thresholds - 1)).astype(jnp.int32), 0, thresholds - 1)  # off by one at most
    above = jnp.clip(guess + 1, 0, thresholds - 1)
    guess = jnp.where(p >= values[above], above, guess)
    return jnp.where(p >= values[guess], guess, jnp.maximum(guess - 1, 0))


def rates_from_the_top(total: Mapping[str, Any], xp: ModuleType) -> tuple[Any, Any]:
    """Return the counts of false and of true positives at every threshold, highest threshold first."""
    return tuple(xp.cumsum(xp.flip(total[side], -1), -1) for side in ("negative", "positive"))


def roc_area(total: Mapping[str, Any], xp: ModuleType, add_origin: bool) -> Any:
    """Return the trapezoidal area of the curve (false positive rate, true positive rate), over the last axis."""
    false_positives, true_positives = rates_from_the_top(total, xp)
    x = ratio(xp, false_positives, false_positives[..., -1:])
    y = ratio(xp, true_positives, true_positives[..., -1:])
    area = xp.sum((x[..., 1:] - x[..., :-1]) * (y[..., 1:] + y[..., :-1]), -1) / 2
    return area + x[..., 0] * y[..., 0] / 2 if add_origin else area


def average_precision(total: Mapping[str, Any], xp: ModuleType) -> Any:
    """``sum_t (R(t) - R(t above)) * P(t)``: the area of the steps of the curve (recall, precision)."""
    false_positives, true_positives = rates_from_the_top(total, xp)
    called = false_positives + true_positives
    precision = true_positives / xp.where(called > 0, called, 1)
    found = xp.flip(total["positive"], -1)  # between this threshold and the one above
    return ratio(xp, xp.sum(found * precision), true_positives[-1])


Thresholds = Annotated[int, fields.Bounds(at_least=2)]
"""A curve needs two points."""


class HistogramMetric(BinaryMetric):
    """The weight of positive and negative rows between neighboring thresholds."""

    thresholds: Thresholds

    _label_domain = BINARY

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {"negative": (self.thresholds,), "positive": (self.thresholds,)}

    def _sums(self, batch: CheckedRows) -> dict[str, Sum]:
        p = jax.nn.sigmoid(batch.predictions) if self.from_logits else batch.predictions
        index = threshold_index(p, self.thresholds) + self.thresholds * batch.labels.astype(jnp.int32)
        total = sums.bin_sums(index, batch.weights, 2 * self.thresholds)
        return {"negative": total[:, : self.thresholds], "positive": total[:, self.thresholds :]}

    def _undefined(self, total: Mapping[str, Any]) -> str:
        return missing_class(total["positive"].sum(), total["negative"].sum())


@register_metric("auc")
@dataclasses.dataclass(frozen=True)
class AUC(HistogramMetric):
    """Area under the ROC curve, binned: fixed size, jittable, within about 1 / thresholds of the exact area.

    At every threshold ``t`` of ``linspace(0, 1, thresholds)`` a row is called positive when ``p >= t``; the area
    below the points (false positive rate, true positive rate) is taken by trapezoids. This is the curve of
    torchmetrics and TorchEasyRec: it begins at ``t = 1``, so that rows predicted exactly 1.0 lose the area between
    (0, 0) and the first point. ``add_origin`` adds the point (0, 0); choose it when predictions saturate.
    `ExactAUC` has no bins.

    >>> metric = AUC(thresholds=10)
    >>> p = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    >>> round(metric.compute(metric.update(metric.init(), p, [1, 0, 1, 0, 0, 0, 1, 1])), 6)
    0.5625
    """

    thresholds: Thresholds = 200
    from_logits: bool = False
    add_origin: bool = False

    def _value(self, total: Mapping[str, Any], xp: ModuleType) -> Any:
        return roc_area(total, xp, self.add_origin)


@register_metric("pr_auc")
@dataclasses.dataclass(frozen=True)
class PRAUC(HistogramMetric):
    """Average precision, binned: ``sum_t (R(t) - R(t above)) * P(t)``, from the highest threshold down.

    Precision ``P`` and recall ``R`` count a row as positive when ``p >= t``. Fixed size, jittable; `ExactPRAUC` has
    no bins.

    >>> metric = PRAUC()
    >>> round(metric.compute(metric.update(metric.init(), [0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])), 6)
    0.833333
    """

    thresholds: Thresholds = 200
    from_logits: bool = False

    def _value(self, total: Mapping[str, Any], xp: ModuleType) -> Any:
        return average_precision(total, xp)


@register_metric("multiclass_auc")
@dataclasses.dataclass(frozen=True)
class MulticlassAUC(FixedSizeMetric):
    """The mean over classes of each class's AUC against all others, binned as `AUC`.

    ``average``: "macro" counts every class alike, "weighted" by the weight of its rows. Classes without positive
    or without negative rows have no AUC: they are left out, and listed in `details` as ``left_out`` (beside
    ``per_class``). Predictions are ``(n, num_classes)``, labels the class ``(n,)``.

    >>> metric = MulticlassAUC(num_classes=3)
    >>> p = [[0.8, 0.1, 0.1], [0.3, 0.5, 0.2], [0.2, 0.2, 0.6], [0.5, 0.3, 0.2]]
    >>> state = metric.update(metric.init(), p, [0, 1, 2, 1])
    >>> round(metric.compute(state), 6)
    1.0
    """

    num_classes: Annotated[int, fields.Bounds(at_least=2)]
    thresholds: Thresholds = 200
    average: Literal["macro", "weighted"] = "macro"
    from_logits: bool = False

    @property
    def _label_domain(self) -> Domain:
        return class_index(self.num_classes)

    def _matched(self, predictions: Any, labels: Any) -> tuple[Any, Any, Domain]:
        if predictions.ndim != 2 or predictions.shape[1] != self.num_classes:
            raise ValueError(
                f"{self.name}.update: predictions have shape {predictions.shape}; "
                f"num_classes={self.num_classes} needs (n, {self.num_classes})"
            )
        check_equal_shapes(self.name, predictions[:, 0], labels)
        return predictions, labels, self._label_domain

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        shape = (self.num_classes, self.thresholds)
        return {"negative": shape, "positive": shape}

    def _sums(self, batch: CheckedRows) -> dict[str, Sum]:
        p = jax.nn.softmax(batch.predictions) if self.from_logits else batch.predictions
        classes = jnp.arange(self.num_classes)
        is_label = batch.labels.astype(jnp.int32)[:, None] == classes
        row = 2 * classes + is_label  # negatives, then positives, of every class
        index = (row * self.thresholds + threshold_index(p, self.thresholds)).reshape(-1)
        weights = None if batch.weights is None else weighted(batch.weights, jnp.ones_like(p)).reshape(-1)
        total = sums.bin_sums(index, weights, 2 * self.num_classes * self.thresholds)
        by_side = total.reshape(2, self.num_classes, 2, self.thresholds)
        return {"negative": by_side[:, :, 0], "positive": by_side[:, :, 1]}

    def _value(self, total: Mapping[str, Any], xp: ModuleType) -> Any:
        areas = roc_area(total, xp, add_origin=False)
        defined = ~xp.isnan(areas)
        support = total["positive"].sum(-1) if self.average == "weighted" else xp.ones_like(areas)
        share = xp.where(defined, support, 0)
        return ratio(xp, xp.sum(share * xp.where(defined, areas, 0)), xp.sum(share))

    def _undefined(self, total: Mapping[str, Any]) -> str:
        return "no class has both labels" if total["negative"].any() else super()._undefined(total)

    def _details(self, total: Mapping[str, Any]) -> dict[str, Any]:
        areas = roc_area(total, np, add_origin=False)
        return {"per_class": areas, "left_out": np.flatnonzero(np.isnan(areas))}
