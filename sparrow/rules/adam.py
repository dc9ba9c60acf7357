"""The Adam family: two moments, with bias correction."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp

from sparrow.rules.base import (
    PER_ELEMENT,
    PER_ROW,
    Hyper,
    NotNegative,
    Rule,
    Scalar,
    ScalarOrSchedule,
    Share,
    Slot,
    Slots,
    bias_correction,
    divide_or_zero,
    log,
    mean,
    norm,
    step_count,
    trust_ratio,
)


@dataclasses.dataclass(frozen=True)
class _Moments(Rule):
    """The base of Adam, LAMB and their row-wise forms: two moments and the corrected direction."""

    learning_rate: ScalarOrSchedule = 0.001
    beta1: Share = 0.9
    beta2: Share = 0.999
    eps: NotNegative = 1e-8
    weight_decay: NotNegative = 0.0

    def hyper(self, step: Any) -> dict[str, Scalar]:
        """Add the weights of the new gradient and the bias corrections: 1 / (1 - beta**t) with t = 1 at first."""
        h = super().hyper(step)
        return h | {
            "new1": 1.0 - h["beta1"],
            "new2": 1.0 - h["beta2"],
            "scale1": 1.0 / bias_correction(h["beta1"], step_count(step)),
            "scale2": 1.0 / bias_correction(h["beta2"], step_count(step)),
        }

    def moments(self, grad: jax.Array, slots: Slots, h: Hyper) -> tuple[jax.Array, jax.Array]:
        """Return both moments after this gradient; the second one of grad**2, or of its mean over the row."""
        square = mean(grad * grad) if self.slots["velocity"].layout == PER_ROW else grad * grad
        momentum = h.beta1 * slots["momentum"] + h.new1 * grad
        velocity = h.beta2 * slots["velocity"] + h.new2 * square
        return momentum, velocity


def corrected(momentum: jax.Array, velocity: jax.Array, scale1: Scalar, scale2: Scalar, eps: Scalar) -> jax.Array:
    """``momentum * scale1 / (sqrt(velocity * scale2) + eps)``; 0 where nothing was ever seen.

    A processor multiplies several times as fast as it divides: so the scales are reciprocals, and where the velocity is
    one number per row, so is the quotient.
    """
    return momentum * divide_or_zero(scale1, jnp.sqrt(velocity * scale2) + eps)


@dataclasses.dataclass(frozen=True)
class Adam(_Moments):
    """Adam on touched rows ("lazy Adam"), with decoupled weight decay::

        momentum' = beta1 * momentum + (1 - beta1) * grad
        velocity' = beta2 * velocity + (1 - beta2) * grad**2
        direction = momentum' / (1 - beta1**t) / (sqrt(velocity' / (1 - beta2**t)) + eps)
        row      -= learning_rate * (direction + weight_decay * row)

    t is the optimizer step counted from 1, or with ``bias_correction="row"`` how often this row was updated, which
    costs one more number per row. Differs from dense AdamW: rows that are not touched keep their moments and do
    not decay.

    >>> sorted(Adam(bias_correction="row").slots)
    ['count', 'momentum', 'velocity']

    References: Kingma, Ba, 2014, arXiv 1412.6980; Loshchilov, Hutter, 2017, arXiv 1711.05101.
    """

    bias_correction: Literal["step", "row"] = "step"

    @property
    def slots(self) -> Mapping[str, Slot]:
        moments = {"momentum": Slot(PER_ELEMENT), "velocity": Slot(PER_ELEMENT)}
        return moments | ({"count": Slot(PER_ROW)} if self.bias_correction == "row" else {})

    def hyper(self, step: Any) -> dict[str, Scalar]:
        """Add the logarithms that a per-row correction needs."""
        h = super().hyper(step)
        if self.bias_correction == "step":
            return h
        return h | {"log_beta1": log(h["beta1"]), "log_beta2": log(h["beta2"])}

    def update(self, row: jax.Array, grad: jax.Array, slots: Slots, h: Hyper) -> tuple[jax.Array, Slots]:
        momentum, velocity = self.moments(grad, slots, h)
        new_slots = {"momentum": momentum, "velocity": velocity}
        scale1, scale2 = h.scale1, h.scale2
        if self.bias_correction == "row":
            count = slots["count"] + 1.0
            scale1, scale2 = -1.0 / jnp.expm1(count * h.log_beta1), -1.0 / jnp.expm1(count * h.log_beta2)
            new_slots["count"] = count
        direction = corrected(momentum, velocity, scale1, scale2, h.eps)
        return row - h.learning_rate * (direction + h.weight_decay * row), new_slots


@dataclasses.dataclass(frozen=True)
class PartialRowwiseAdam(_Moments):
    """Adam with one second moment per row::

        momentum' = beta1 * momentum + (1 - beta1) * grad
        velocity' = beta2 * velocity + (1 - beta2) * mean(grad**2)           one number per row
        direction = momentum' / (1 - beta1**t) / (sqrt(velocity' / (1 - beta2**t)) + eps)
        row      -= learning_rate * (direction + weight_decay * row)

    Has no dense cousin in optax. Untouched rows keep their moments and do not decay.

    Reference: FBGEMM's partial row-wise Adam.
    """

    slots = {"momentum": Slot(PER_ELEMENT), "velocity": Slot(PER_ROW)}

    def update(self, row: jax.Array, grad: jax.Array, slots: Slots, h: Hyper) -> tuple[jax.Array, Slots]:
        momentum, velocity = self.moments(grad, slots, h)
        direction = corrected(momentum, velocity, h.scale1, h.scale2, h.eps)
        row = row - h.learning_rate * (direction + h.weight_decay * row)
        return row, {"momentum": momentum, "velocity": velocity}


@dataclasses.dataclass(frozen=True)
class LAMB(_Moments):
    """Adam's direction, scaled so that each row moves in proportion to its own length::

        direction = Adam's, plus weight_decay * row
        row      -= learning_rate * (|row| / |direction|) * direction        (ratio 1 where a norm is zero)

    Differs from dense LAMB: the ratio is of one row, not of the matrix; untouched rows keep their moments.

    Reference: You et al., 2019, arXiv 1904.00962.
    """

    slots = {"momentum": Slot(PER_ELEMENT), "velocity": Slot(PER_ELEMENT)}

    def update(self, row: jax.Array, grad: jax.Array, slots: Slots, h: Hyper) -> tuple[jax.Array, Slots]:
        momentum, velocity = self.moments(grad, slots, h)
        direction = corrected(momentum, velocity, h.scale1, h.scale2, h.eps) + h.weight_decay * row
        ratio = trust_ratio(norm(row), norm(direction))
        return row - h.learning_rate * ratio * direction, {"momentum": momentum, "velocity": velocity}


@dataclasses.dataclass(frozen=True)
class PartialRowwiseLAMB(LAMB):
    """LAMB with one second moment per row, as in `PartialRowwiseAdam`.

    Reference: FBGEMM's partial row-wise LAMB.
    """

    slots = {"momentum": Slot(PER_ELEMENT), "velocity": Slot(PER_ROW)}
