"""Means of one value per element: MAE, MSE, RMSE, RelativeL1, and the plain mean. Fixed size, jittable."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import jax.numpy as jnp

from sparrow.metrics import sums
from sparrow.metrics.fixed import FixedSizeMetric, ratio, weighted
from sparrow.metrics.inputs import CheckedRows, as_floats, check_batch, clean
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
        """Return the predictions."""
        return batch.predictions

    def _read(self, predictions: Any, labels: Any, weights: Any) -> CheckedRows:
        predictions = as_floats(jnp, self.name, "predictions", predictions)
        check_batch(self.name, predictions, None, weights)
        return clean(predictions, None, weights, self._prediction_domain, self._label_domain)


@register_metric("mae")
@dataclasses.dataclass(frozen=True)
class MAE(AverageMetric):
    """Mean absolute error: ``sum w * |p - y| / sum w``.

    >>> metric = MAE()
    >>> metric.compute(metric.update(metric.init(), [1.0, 2.0], [1.5, 4.0]))
    1.25
    """

    def values(self, batch: CheckedRows) -> Any:
        """Return the absolute errors."""
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
        """Return the squared errors."""
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
        """Return the relative errors."""
        size = jnp.maximum(jnp.abs(batch.predictions), jnp.abs(batch.labels)) + self.epsilon
        # 0 compared with 0 at epsilon 0 is no error.
        return jnp.abs(batch.labels - batch.predictions) / jnp.where(size > 0, size, 1)
