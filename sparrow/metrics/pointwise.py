"""Metrics of each prediction with its label: errors, accuracy, log loss, entropy, calibration. Fixed size, jittable."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping
from types import ModuleType
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sparrow.fields import Bounds, Count
from sparrow.metrics import sums
from sparrow.metrics.fixed import BinaryMetric, FixedSizeMetric, ratio, weighted
from sparrow.metrics.inputs import BINARY, UNIT, CheckedRows, Domain, as_floats, label_domain
from sparrow.metrics.protocol import register_metric
from sparrow.metrics.sums import Sum


class AverageMetric(FixedSizeMetric):
    """``sum w * v / sum w`` over all elements; a row's weight is that of each of its elements.

    The base of your own metrics that are means: a subclass defines `values`, and is jittable, weighted and mergeable.
    """

    @abc.abstractmethod
    def values(self, batch: CheckedRows) -> Any:
        """Return the value of every element, (n, ...), from ``batch.predictions`` and ``batch.labels``."""

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {"total": (), "weight": ()}

    def _sums(self, batch: CheckedRows) -> dict[str, Sum]:
        values = self.values(batch)
        return {
            "total": sums.reduce(weighted(batch.weights, values).reshape(-1)),
            "weight": element_weight(batch, per_row=math.prod(values.shape[1:])),
        }

    def _value(self, total: Mapping[str, Any], xp: ModuleType) -> Any:
        return ratio(xp, total["total"], total["weight"])


def element_weight(batch: CheckedRows, per_row: int = 1) -> Sum:
    """Return the weight of all elements of a batch; without weights their number, exactly."""
    if batch.weights is None:
        return sums.split(jnp.asarray(batch.predictions.shape[0] * per_row, jnp.int32))
    return sums.reduce(batch.weights * per_row)


@register_metric("mean")
@dataclasses.dataclass(frozen=True)
class Mean(AverageMetric):
    """The mean of given values, such as a loss per example: ``sum w * v / sum w``. Labels are not used.

    >>> metric = Mean()
    >>> metric.compute(metric.update(metric.init(), [1.0, 4.0], weights=[3.0, 1.0]))
    1.75
    """

    def values(self, batch: CheckedRows) -> Any:
        return batch.predictions

    def _read(self, predictions: Any, labels: Any, weights: Any) -> CheckedRows:
        predictions = as_floats(jnp, self.name, "predictions", predictions)
        return super()._read(predictions, jnp.zeros_like(predictions), weights)


@register_metric("mae")
@dataclasses.dataclass(frozen=True)
class MAE(AverageMetric):
    """Mean absolute error: ``sum w * |p - y| / sum w``.

    >>> metric = MAE()
    >>> metric.compute(metric.update(metric.init(), [1.0, 2.0], [1.5, 4.0]))
    1.25
    """

    def values(self, batch: CheckedRows) -> Any:
        return jnp.abs(batch.predictions - batch.labels)


@register_metric("mse")
@dataclasses.dataclass(frozen=True)
class MSE(AverageMetric):
    """Mean squared error: ``sum w * (p - y)^2 / sum w``.

    >>> metric = MSE()
    >>> metric.compute(metric.update(metric.init(), [1.0, 2.0], [1.0, 4.0]))
    2.0
    """

    def values(self, batch: CheckedRows) -> Any:
        return jnp.square(batch.predictions - batch.labels)


@register_metric("rmse")
@dataclasses.dataclass(frozen=True)
class RMSE(MSE):
    """Root of the mean squared error, over everything seen: ``sqrt(sum w * (p - y)^2 / sum w)``.

    >>> metric = RMSE()
    >>> metric.compute(metric.update(metric.init(), [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 6.0]))
    1.0
    """

    def _value(self, total: Mapping[str, Any], xp: ModuleType) -> Any:
        return xp.sqrt(super()._value(total, xp))


@register_metric("relative_l1")
@dataclasses.dataclass(frozen=True)
class RelativeL1(AverageMetric):
    """Relative error of every element: mean of ``|y - p| / (max(|y|, |p|) + epsilon)``.

    As TorchEasyRec defines it for the reconstructions of semantic ids.

    >>> metric = RelativeL1(epsilon=0.0)
    >>> metric.compute(metric.update(metric.init(), [1.0, 3.0], [2.0, 3.0]))
    0.25
    """

    epsilon: float = 1e-4

    def values(self, batch: CheckedRows) -> Any:
        size = jnp.maximum(jnp.abs(batch.predictions), jnp.abs(batch.labels)) + self.epsilon
        # 0 compared with 0 at epsilon 0 is no error.
        return jnp.abs(batch.labels - batch.predictions) / jnp.where(size > 0, size, 1)


LOWEST_LOG = -100.0  # of a probability that is 0: a wrong prediction that was certain costs 100, not infinity


@register_metric("accuracy")
@dataclasses.dataclass(frozen=True)
class Accuracy(AverageMetric):
    """The weighted share of right predictions.

    Predictions ``(n,)``: right when ``(p > threshold) == (y == 1)``. Predictions ``(n, classes)`` with the class
    as label ``(n,)``: right when fewer than ``top_k`` other classes score as high as the label. So ties count as
    wrong, and a model that scores all classes alike is right about nothing.

    >>> metric = Accuracy()
    >>> metric.compute(metric.update(metric.init(), [0.2, 0.6, 0.7, 0.5], [0, 1, 0, 1]))
    0.5
    """

    threshold: float = 0.5
    top_k: Count = 1

    def _matched(self, predictions: Any, labels: Any) -> tuple[Any, Any, Domain]:
        if predictions.ndim == 1 and self.top_k > 1:
            raise ValueError(
                f"{self.name}.update: top_k={self.top_k} needs predictions (n, classes), got {predictions.shape}"
            )
        return predictions, labels, label_domain(self.name, predictions, labels, BINARY)

    _label_domain = Domain("0 or 1, or the index of a class", BINARY.contains)

    def values(self, batch: CheckedRows) -> Any:
        scores, labels = batch.predictions, batch.labels
        if scores.ndim == 1:
            right = (scores > np.float32(self.threshold)) == (labels == 1)
        else:
            of_label = jnp.take_along_axis(scores, labels.astype(jnp.int32)[:, None], axis=1)
            right = jnp.sum(scores >= of_label, axis=1) <= self.top_k
        return right.astype(jnp.float32)


def binary_log_loss(predictions: Any, labels: Any, from_logits: bool) -> Any:
    """``-(y log p + (1 - y) log(1 - p))`` per example; logs of probabilities are not below -100."""
    if from_logits:
        return optax.sigmoid_binary_cross_entropy(predictions, labels)
    log_p = jnp.maximum(jnp.log(predictions), LOWEST_LOG)
    log_not_p = jnp.maximum(jnp.log1p(-predictions), LOWEST_LOG)
    return -(labels * log_p + (1 - labels) * log_not_p)


@register_metric("log_loss")
@dataclasses.dataclass(frozen=True)
class LogLoss(AverageMetric):
    """Mean cross entropy, ``-sum w * log(probability of the label) / sum w``.

    Predictions ``(n,)`` with labels in [0, 1] (soft labels too), or ``(n, classes)`` with the class as label
    ``(n,)``. Logs of probabilities are not below -100, as in PyTorch.

    >>> metric = LogLoss()
    >>> round(metric.compute(metric.update(metric.init(), [0.5, 0.25], [1, 0])), 6)
    0.490415
    """

    from_logits: bool = False

    _neutral_prediction = 0.5
    _label_domain = Domain("in [0, 1], or the index of a class", UNIT.contains)

    def _matched(self, predictions: Any, labels: Any) -> tuple[Any, Any, Domain]:
        return predictions, labels, label_domain(self.name, predictions, labels, UNIT)

    def values(self, batch: CheckedRows) -> Any:
        predictions, labels = batch.predictions, batch.labels
        if predictions.ndim == 1:
            return binary_log_loss(predictions, labels, self.from_logits)
        logs = jax.nn.log_softmax(predictions) if self.from_logits else jnp.log(predictions)
        of_label = jnp.take_along_axis(logs, labels.astype(jnp.int32)[:, None], axis=1)[:, 0]
        return -(of_label if self.from_logits else jnp.maximum(of_label, LOWEST_LOG))


@register_metric("normalized_entropy")
@dataclasses.dataclass(frozen=True)
class NormalizedEntropy(BinaryMetric):
    """Log loss in units of the log loss of the base rate: below 1 is better than always predicting the base rate.

    ``sum w * log_loss / -(P log r + N log(1 - r))`` where ``P = sum w y``, ``N = sum w (1 - y)`` and
    ``r = P / (P + N)``, clipped to ``[eta, 1 - eta]``: with one class only the result is large, not infinite.

    Reference: X. He et al., "Practical lessons from predicting clicks on ads at Facebook", 2014.

    >>> metric = NormalizedEntropy()
    >>> round(metric.compute(metric.update(metric.init(), [0.1, 0.4, 0.6, 0.9], [0, 0, 1, 1])), 6)
    0.444484
    """

    eta: Annotated[float, Bounds(above=0, below=0.5)] = 1e-12
    from_logits: bool = False

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {"log_loss": (), "positive": (), "weight": ()}

    def _sums(self, batch: CheckedRows) -> dict[str, Sum]:
        losses = binary_log_loss(batch.predictions, batch.labels, self.from_logits)
        total = sums.reduce(weighted(batch.weights, jnp.stack([losses, batch.labels], axis=1)))
        return {"log_loss": total[:, 0], "positive": total[:, 1], "weight": element_weight(batch)}

    def _value(self, total: Mapping[str, Any], xp: ModuleType) -> Any:
        positive, weight = total["positive"], total["weight"]
        negative = weight - positive
        # Each rate is clipped by itself: in float32 the complement of a clipped rate would round to 0.
        log_rate = xp.log(xp.clip(ratio(xp, positive, weight), self.eta, 1 - self.eta))
        log_complement = xp.log(xp.clip(ratio(xp, negative, weight), self.eta, 1 - self.eta))
        return ratio(xp, total["log_loss"], -(positive * log_rate + negative * log_complement))


@register_metric("calibration")
@dataclasses.dataclass(frozen=True)
class Calibration(BinaryMetric):
    """Predicted over observed: ``sum w p / sum w y``; 1 is right, 1.1 promises 10% more than there is.

    `details` gives the reliability curve over ``bins`` equal bins of p, as arrays ``predicted`` and
    ``observed`` (weighted means, NaN in empty bins) and ``weight``, and the ``expected_error``, the weighted mean
    of ``|predicted - observed|``.

    Reference: C. Guo et al., "On calibration of modern neural networks", 2017.

    >>> metric = Calibration(bins=2)
    >>> state = metric.update(metric.init(), [0.25, 0.25, 0.75, 0.75], [0, 1, 1, 1])
    >>> round(metric.compute(state), 6)
    0.666667
    >>> metric.details(state)["observed"]
    array([0.5, 1. ])
    """

    bins: Count = 20
    from_logits: bool = False

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {"predicted": (self.bins,), "observed": (self.bins,), "weight": (self.bins,)}

    def _sums(self, batch: CheckedRows) -> dict[str, Sum]:
        p = jax.nn.sigmoid(batch.predictions) if self.from_logits else batch.predictions
        index = jnp.clip((p * self.bins).astype(jnp.int32), 0, self.bins - 1)
        columns = jnp.stack([p, batch.labels, jnp.ones_like(p)], axis=1)  # (n, 3)
        total = sums.bin_sums(index, weighted(batch.weights, columns), self.bins)
        return {"predicted": total[:, :, 0], "observed": total[:, :, 1], "weight": total[:, :, 2]}

    def _value(self, total: Mapping[str, Any], xp: ModuleType) -> Any:
        return ratio(xp, total["predicted"].sum(), total["observed"].sum())

    def _undefined(self, total: Mapping[str, Any]) -> str:
        return "no positive labels" if total["weight"].sum() else super()._undefined(total)

    def _details(self, total: Mapping[str, Any]) -> dict[str, Any]:
        predicted = ratio(np, total["predicted"], total["weight"])
        observed = ratio(np, total["observed"], total["weight"])
        gaps = np.abs(total["predicted"] - total["observed"]).sum()
        return {
            "predicted": predicted,
            "observed": observed,
            "weight": total["weight"],
            "expected_error": float(ratio(np, gaps, total["weight"].sum())),
        }
