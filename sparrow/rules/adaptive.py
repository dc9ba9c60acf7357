"""Rules scaled by a decaying average: RMSprop, Adadelta, LaProp; and Lion, which keeps only the sign."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from sparrow import fields
from sparrow.rules.base import (
    PER_ELEMENT,
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
    step_count,
)


@dataclasses.dataclass(frozen=True)
class RMSprop(Rule):
    """RMSprop in PyTorch's form, eps outside the root::

        square' = alpha * square + (1 - alpha) * grad**2
        row    -= learning_rate * (grad / (sqrt(square') + eps) + weight_decay * row)

    Differs from the dense form: the average of an untouched row does not decay.

    Reference: Hinton, 2012, lecture 6e of "Neural networks for machine learning".
    """

    learning_rate: ScalarOrSchedule = 0.01
    alpha: Share = 0.99
    eps: NotNegative = 1e-8
    weight_decay: NotNegative = 0.0

    slots = {"square": Slot(PER_ELEMENT)}

    def hyper(self, step: Any) -> dict[str, Scalar]:
        h = super().hyper(step)
        return h | {"new": 1.0 - h["alpha"]}

    def update(self, row: jax.Array, grad: jax.Array, slots: Slots, h: Hyper) -> tuple[jax.Array, Slots]:
        square = h.alpha * slots["square"] + h.new * grad * grad
        direction = divide_or_zero(grad, jnp.sqrt(square) + h.eps)
        return row - h.learning_rate * (direction + h.weight_decay * row), {"square": square}


@dataclasses.dataclass(frozen=True)
class Adadelta(Rule):
    """Adadelta: the step is scaled by the average of the steps before it::

        square' = rho * square + (1 - rho) * grad**2
        delta   = sqrt(step + eps) / sqrt(square' + eps) * grad
        step'   = rho * step + (1 - rho) * delta**2
        row    -= learning_rate * (delta + weight_decay * row)

    eps is inside the roots, as in the paper. Differs from the dense form: averages of untouched rows do not decay.

    Reference: Zeiler, 2012, arXiv 1212.5701.
    """

    learning_rate: ScalarOrSchedule = 1.0
    rho: Share = 0.9
    eps: NotNegative = 1e-6
    weight_decay: NotNegative = 0.0

    slots = {"square": Slot(PER_ELEMENT), "step": Slot(PER_ELEMENT)}

    def hyper(self, step: Any) -> dict[str, Scalar]:
        h = super().hyper(step)
        return h | {"new": 1.0 - h["rho"]}

    def update(self, row: jax.Array, grad: jax.Array, slots: Slots, h: Hyper) -> tuple[jax.Array, Slots]:
        square = h.rho * slots["square"] + h.new * grad * grad
        delta = divide_or_zero(jnp.sqrt(slots["step"] + h.eps), jnp.sqrt(square + h.eps)) * grad
        step = h.rho * slots["step"] + h.new * delta * delta
        return row - h.learning_rate * (delta + h.weight_decay * row), {"square": square, "step": step}


@dataclasses.dataclass(frozen=True)
class LaProp(Rule):
    """LaProp: the gradient is scaled first and averaged after::

        decay = beta2 * (1 - beta2**step) / (1 - beta2**(step + 1))          step counted from 0
        nu'   = decay * nu + (1 - decay) * (grad**2 + eps)
        mu'   = beta1 * mu + sqrt(1 - beta1**2) * grad / sqrt(nu')
        row  -= learning_rate * mu'

    The first step has decay 0, so that the first touch at step 0 moves by the sign of the gradient. eps joins the
    square before the average. Untouched rows keep both averages.

    Reference: Ziyin, Wang, Ueda, 2020, arXiv 2002.04839, in SparseCore's form.
    """

    learning_rate: ScalarOrSchedule = 0.001
    beta1: Share = 0.9
    beta2: Share = 0.95
    eps: NotNegative = 1e-30
    initial_slot: fields.NotNegative = 0.0

    slots = {"mu": Slot(PER_ELEMENT, init="initial_slot"), "nu": Slot(PER_ELEMENT, init="initial_slot")}

    def hyper(self, step: Any) -> dict[str, Scalar]:
        """Add the decay at this step, what is left of 1, and the weight of the scaled gradient."""
        h = super().hyper(step)
        count = step_count(step)
        after = bias_correction(h["beta2"], count)
        return h | {
            "decay": h["beta2"] * bias_correction(h["beta2"], count - 1.0) / after,
            "new_square": (1.0 - h["beta2"]) / after,
            "new_grad": (1.0 - h["beta1"] ** 2) ** 0.5,
        }

    def update(self, row: jax.Array, grad: jax.Array, slots: Slots, h: Hyper) -> tuple[jax.Array, Slots]:
        nu = h.decay * slots["nu"] + h.new_square * (grad * grad + h.eps)
        mu = h.beta1 * slots["mu"] + h.new_grad * divide_or_zero(grad, jnp.sqrt(nu))
        return row - h.learning_rate * mu, {"mu": mu, "nu": nu}


@dataclasses.dataclass(frozen=True)
class Lion(Rule):
    """Lion: the sign of an average, with decoupled weight decay::

        direction = sign(beta1 * momentum + (1 - beta1) * grad)
        momentum' = beta2 * momentum + (1 - beta2) * grad
        row      -= learning_rate * (direction + weight_decay * row)

    Differs from dense Lion: an untouched row keeps its momentum and does not move. A touched row moves by the
    full rate even when its gradient is zero, as long as its momentum is not.

    Reference: Chen et al., 2023, arXiv 2302.06675.
    """

    learning_rate: ScalarOrSchedule = 0.0001
    beta1: Share = 0.9
    beta2: Share = 0.99
    weight_decay: NotNegative = 0.0

    slots = {"momentum": Slot(PER_ELEMENT)}

    def hyper(self, step: Any) -> dict[str, Scalar]:
        h = super().hyper(step)
        return h | {"new1": 1.0 - h["beta1"], "new2": 1.0 - h["beta2"]}

    def update(self, row: jax.Array, grad: jax.Array, slots: Slots, h: Hyper) -> tuple[jax.Array, Slots]:
        direction = jnp.sign(h.beta1 * slots["momentum"] + h.new1 * grad)
        momentum = h.beta2 * slots["momentum"] + h.new2 * grad
        return row - h.learning_rate * (direction + h.weight_decay * row), {"momentum": momentum}
