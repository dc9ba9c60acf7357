"""The base of metrics whose state is a few sums: they run inside a jitted step and merge by addition."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sparrow.metrics import sums
from sparrow.metrics.inputs import (
    FAULT_KINDS,
    FINITE,
    NO_ROWS,
    PROBABILITY,
    UNIT,
    CheckedRows,
    Domain,
    as_arrays,
    as_floats,
    check_batch,
    check_equal_shapes,
    clean,
    fault_reason,
    is_traced,
    positive_probability,
    refuse_groups,
)
from sparrow.metrics.protocol import Metric, Result
from sparrow.metrics.sums import Sum

SumState = Sum  # (2, K): all the sums of a metric, one after the other


class FixedSizeMetric(Metric[SumState]):
    """A metric of sums. Subclasses define the sums of a batch, and the number that the sums give.

    ``_value`` is written once for both worlds: ``xp`` is NumPy on the host (float64 sums) and ``jax.numpy`` inside
    a step (float32 sums). It is NaN where the metric is not defined, and ``_undefined`` then gives the reason.
    """

    _neutral_prediction: ClassVar[float] = 0.0  # of a row that does not count

    @property
    def _prediction_domain(self) -> Domain:
        return PROBABILITY if self.needs_probabilities else FINITE

    @property
    def _label_domain(self) -> Domain:
        return FINITE

    @abc.abstractmethod
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the sums of the state, by name."""

    @abc.abstractmethod
    def _sums(self, batch: CheckedRows) -> dict[str, Sum]:
        """Return the sums of one batch."""

    @abc.abstractmethod
    def _value(self, total: Mapping[str, Any], xp: ModuleType) -> Any:
        """Return the number that the sums make."""

    def _undefined(self, total: Mapping[str, Any]) -> str:
        """Why ``_value`` is NaN: the end of a sentence that begins with the metric's name."""
        return NO_ROWS

    def _details(self, total: Mapping[str, Any]) -> dict[str, Any]:
        """Return the details that the sums give besides the number."""
        return {}

    def _read(self, predictions: Any, labels: Any, weights: Any) -> CheckedRows:
        """Check and clean one batch."""
        predictions = as_floats(jnp, self.name, "predictions", predictions)
        labels = as_floats(jnp, self.name, "labels", labels)
        check_batch(self.name, predictions, labels, weights)
        predictions, labels, domain = self._matched(predictions, labels)
        return clean(predictions, labels, weights, self._prediction_domain, domain, self._neutral_prediction)

    def _matched(self, predictions: Any, labels: Any) -> tuple[Any, Any, Domain]:
        """Return both as the sums take them, and the labels allowed; the plain case has one shape for both."""
        check_equal_shapes(self.name, predictions, labels)
        return predictions, labels, self._label_domain

    jittable = True

    def init(self) -> SumState:
        size = sum(math.prod(shape) for shape in self._layout().values())
        return jnp.asarray(np.zeros((2, size), np.float32))

    def update(
        self, state: SumState, predictions: Any, labels: Any = None, weights: Any = None, groups: Any = None
    ) -> SumState:
        refuse_groups(self.name, groups)
        added: SumState = _update(self, state, *as_arrays(self.name, predictions, labels, weights))
        return added

    def merge(self, a: SumState, b: SumState) -> SumState:
        if not is_traced(a, b):  # a few numbers: NumPy adds them sooner than a compiler starts
            a, b = jax.tree.map(np.asarray, (a, b))
        return sums.add(a, b)

    def totals(self, state: SumState) -> dict[str, NDArray[np.float64]]:
        """Return the sums by name, in float64 on the host."""
        return self._unpack(sums.to_float64(state))

    def to_arrays(self, state: SumState) -> dict[str, NDArray[Any]]:
        return {"sums": np.asarray(state)}

    def from_arrays(self, arrays: dict[str, NDArray[Any]]) -> SumState:
        return jnp.asarray(arrays["sums"])

    def _layout(self) -> dict[str, tuple[int, ...]]:
        return {**self._shapes(), "faults": (len(FAULT_KINDS),)}

    def _unpack(self, flat: Any) -> dict[str, Any]:
        """(K,) numbers by name."""
        layout, start, named = self._layout(), 0, {}
        for name, shape in layout.items():
            named[name] = flat[start : start + math.prod(shape)].reshape(shape)
            start += math.prod(shape)
        return named

    def evaluate(self, state: SumState) -> Result:
        total = self.totals(state)
        if total["faults"].any():
            faults = fault_reason(self.name, list(total["faults"]), self._prediction_domain, self._label_domain)
            return Result(float("nan"), faults, {})
        if not all(np.isfinite(array).all() for array in total.values()):
            return Result(float("nan"), f"{self.name}: the sums are too large for float32", {})
        value = float(self._value(total, np))
        reason = f"{self.name}: {self._undefined(total)}" if np.isnan(value) else None
        return Result(value, reason, self._details(total))

    def value(self, state: SumState) -> jax.Array:
        total = self._unpack(state[0])
        number = jnp.asarray(self._value(total, jnp), jnp.float32)
        return jnp.where(jnp.any(total["faults"] > 0), jnp.float32(jnp.nan), number)

    def has_faults(self, state: SumState) -> jax.Array:
        return jnp.any(self._unpack(state[0])["faults"] > 0)


# Compiled once per metric and shape, so that updates outside of a step are fast as well.
@functools.partial(jax.jit, static_argnums=0)
def _update(metric: FixedSizeMetric, state: SumState, predictions: Any, labels: Any, weights: Any) -> SumState:
    weights = None if weights is None else as_floats(jnp, metric.name, "weights", weights)
    batch = metric._read(predictions, labels, weights)
    added = sums.apart({**metric._sums(batch), "faults": sums.split(batch.faults)})
    in_order = [added[name].reshape(2, -1) for name in metric._layout()]
    return sums.add(jnp.asarray(state), jnp.concatenate(in_order, axis=1))


class BinaryMetric(FixedSizeMetric):
    """A metric of a probability (or a logit, with ``from_logits``) and a label in [0, 1]."""

    from_logits: bool
    _neutral_prediction = 0.5

    _label_domain = UNIT

    def _matched(self, predictions: Any, labels: Any) -> tuple[Any, Any, Domain]:
        return super()._matched(positive_probability(self.name, predictions, self.from_logits), labels)


class BatchMean(FixedSizeMetric):
    """The mean over batches of one number per batch; batches without one are skipped."""

    @abc.abstractmethod
    def _of_batch(self, batch: CheckedRows) -> tuple[Any, Any]:
        """Return the numerator and the denominator of one batch; it has no number where the latter is 0."""

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {"total": (), "batches": ()}

    def _sums(self, batch: CheckedRows) -> dict[str, Sum]:
        numerator, denominator = self._of_batch(batch)
        some = denominator > 0
        value = jnp.where(some, numerator / jnp.where(some, denominator, 1), 0)
        return {"total": sums.split(value), "batches": sums.split(some.astype(jnp.float32))}

    def _value(self, total: Mapping[str, Any], xp: ModuleType) -> Any:
        return ratio(xp, total["total"], total["batches"])


def ratio(xp: ModuleType, numerator: Any, denominator: Any) -> Any:
    """``numerator / denominator``, NaN (and no warning) where the denominator is 0."""
    defined = denominator > 0
    return xp.where(defined, numerator / xp.where(defined, denominator, 1), xp.nan)


def weighted(weights: Any, values: Any) -> Any:
    """``weights * values`` with one weight per row; ``weights`` None means all ones."""
    return values if weights is None else weights.reshape(weights.shape + (1,) * (values.ndim - 1)) * values
