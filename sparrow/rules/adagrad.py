"""The Adagrad family: a sum of squared gradients scales each step."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp

from sparrow import fields
from sparrow.rules.base import (
    PER_ELEMENT,
    PER_ROW,
    Hyper,
    NotNegative,
    Rule,
    Scalar,
    ScalarOrSchedule,
    Slot,
    Slots,
    divide_or_zero,
    mean,
    norm,
)


@dataclasses.dataclass(frozen=True)
class Adagrad(Rule):
    """Adagrad, one accumulator per element::

        accumulator' = accumulator + grad**2
        row         -= learning_rate * grad / (sqrt(accumulator') + eps)

    eps stands outside the root (optax's dense Adagrad has it inside). Rows without gradient do not move in the
    dense form either, so sparse and dense Adagrad are the same optimizer. An element with no history and no
    gradient stays where it is, even with eps = 0.

    >>> Adagrad(learning_rate=0.1, initial_accumulator=0.1).slot_init("accumulator")
    0.1

    Reference: Duchi, Hazan, Singer, 2011, JMLR 12.
    """

    learning_rate: ScalarOrSchedule = 0.01
    initial_accumulator: fields.NotNegative = 0.0
    eps: NotNegative = 1e-8

    slots = {"accumulator": Slot(PER_ELEMENT, init="initial_accumulator")}

    def update(self, row: jax.Array, grad: jax.Array, slots: Slots, h: Hyper) -> tuple[jax.Array, Slots]:
        accumulator = slots["accumulator"] + grad * grad
        step = h.learning_rate * divide_or_zero(grad, jnp.sqrt(accumulator) + h.eps)
        return row - step, {"accumulator": accumulator}


@dataclasses.dataclass(frozen=True)
class RowwiseAdagrad(Rule):
    """Adagrad with one accumulator per row, which costs 1/D of Adagrad's memory::

        grad'        = grad + weight_decay * row    if weight_decay_mode == "l2"   else   grad
        accumulator' = accumulator + mean(grad'**2)
        rate         = learning_rate / (sqrt(accumulator') + eps)
        row          = row - rate * grad'                                   "none", "l2"
        row          = (1 - learning_rate * weight_decay) * row - rate * grad    "decouple"
        row         *= min(1, max_norm / |row|)                             if max_norm is given

    Has no dense cousin in optax. Weight decay acts on touched rows only.

    >>> RowwiseAdagrad(weight_decay=0.1, weight_decay_mode="l2").weight_decay_mode
    'l2'

    Reference: FBGEMM's exact row-wise Adagrad; Gupta, Bengio, Weston, 2014, JMLR 15.
    """

    learning_rate: ScalarOrSchedule = 0.01
    initial_accumulator: fields.NotNegative = 0.0
    eps: NotNegative = 1e-8
    weight_decay: NotNegative = 0.0
    weight_decay_mode: Literal["none", "l2", "decouple"] = "none"
    max_norm: NotNegative | None = None

    slots = {"accumulator": Slot(PER_ROW, init="initial_accumulator")}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight_decay_mode == "none" and (callable(self.weight_decay) or self.weight_decay):
            raise ValueError(
                "RowwiseAdagrad.weight_decay does nothing in weight_decay_mode='none': choose 'l2' or 'decouple'"
            )

    def update(self, row: jax.Array, grad: jax.Array, slots: Slots, h: Hyper) -> tuple[jax.Array, Slots]:
        if self.weight_decay_mode == "l2":
            grad = grad + h.weight_decay * row
        accumulator = slots["accumulator"] + mean(grad * grad)
        if self.weight_decay_mode == "decouple":
            row = (1.0 - h.learning_rate * h.weight_decay) * row
        row = row - divide_or_zero(h.learning_rate, jnp.sqrt(accumulator) + h.eps) * grad
        if self.max_norm is not None:
            length = norm(row)
            row = row * jnp.where(length > h.max_norm, h.max_norm / jnp.maximum(length, h.max_norm), 1.0)
        return row, {"accumulator": accumulator}


@dataclasses.dataclass(frozen=True)
class AdagradMomentum(Rule):
    """Adagrad (or, with beta2 < 1, RMSprop) scaling under momentum::

        accumulator' = accumulator + grad**2                             beta2 == 1
        accumulator' = beta2 * accumulator + (1 - beta2) * grad**2       otherwise
        scaled       = grad * (accumulator' + eps) ** (-1 / exponent)    (0 where accumulator' + eps is 0)
        momentum'    = h.momentum * momentum + scaled
        row         -= learning_rate * (h.momentum * momentum' + scaled  if nesterov else  momentum')

    eps is inside the power, as in the SparseCore rule of that name. No bias correction. Untouched rows keep
    their momentum.
    """

    learning_rate: ScalarOrSchedule = 0.001
    momentum: NotNegative = 0.9
    beta2: Annotated[ScalarOrSchedule, fields.Bounds(at_least=0, at_most=1)] = 1.0
    eps: NotNegative = 1e-10
    exponent: ScalarOrSchedule = 2.0
    nesterov: bool = False
    initial_accumulator: fields.NotNegative = 0.1
    initial_momentum: float = 0.0

    slots = {
        "accumulator": Slot(PER_ELEMENT, init="initial_accumulator"),
        "momentum": Slot(PER_ELEMENT, init="initial_momentum"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exponent == 0:
            raise ValueError("AdagradMomentum.exponent must not be 0")

    def hyper(self, step: Any) -> dict[str, Scalar]:
        """Add the weight of the new square: 1 for a sum, 1 - beta2 for an average."""
        h = super().hyper(step)
        return h | {"new_weight": jnp.where(h["beta2"] == 1.0, 1.0, 1.0 - h["beta2"])}

    def update(self, row: jax.Array, grad: jax.Array, slots: Slots, h: Hyper) -> tuple[jax.Array, Slots]:
        accumulator = h.beta2 * slots["accumulator"] + h.new_weight * grad * grad
        base = accumulator + h.eps
        positive = base > 0
        scaled = jnp.where(positive, grad * jnp.power(jnp.where(positive, base, 1.0), -1.0 / h.exponent), 0.0)
        momentum = h.momentum * slots["momentum"] + scaled
        direction = h.momentum * momentum + scaled if self.nesterov else momentum
        return row - h.learning_rate * direction, {"accumulator": accumulator, "momentum": momentum}


@dataclasses.dataclass(frozen=True)
class F2A(Rule):
    """Frequency-aware Adagrad: rows that are seen rarely take longer steps::

        local_step'  = local_step + 1
        boost        = min((max(step, 1) / local_step') ** rho, max_multiplier)
        accumulator' = accumulator + grad**2
        row         -= learning_rate * (boost * grad / sqrt(accumulator') + l1 * sign(row) + l2 * row)

    ``step`` is the optimizer step counted from 0. l1 and l2 decay touched rows, outside the scaling. One
    local_step per row. Has no dense cousin.

    Attributes:
      rho: the power of the ratio of steps to the row's own updates.
      max_multiplier: the largest boost.
    """

    learning_rate: ScalarOrSchedule = 0.01
    rho: NotNegative = 0.5
    l1: NotNegative = 0.0
    l2: NotNegative = 0.0
    max_multiplier: NotNegative = 1e6
    initial_accumulator: fields.NotNegative = 0.1

    slots = {"accumulator": Slot(PER_ELEMENT, init="initial_accumulator"), "local_step": Slot(PER_ROW)}

    def hyper(self, step: Any) -> dict[str, Scalar]:
        """Add the optimizer step, at least 1."""
        return super().hyper(step) | {"global_step": jnp.maximum(jnp.asarray(step, jnp.float32), 1.0)}

    def update(self, row: jax.Array, grad: jax.Array, slots: Slots, h: Hyper) -> tuple[jax.Array, Slots]:
        local_step = slots["local_step"] + 1.0
        boost = jnp.minimum(jnp.power(h.global_step / local_step, h.rho), h.max_multiplier)
        accumulator = slots["accumulator"] + grad * grad
        step = divide_or_zero(boost * grad, jnp.sqrt(accumulator)) + h.l1 * jnp.sign(row) + h.l2 * row
        return row - h.learning_rate * step, {"accumulator": accumulator, "local_step": local_step}
