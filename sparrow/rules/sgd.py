"""SGD and LARS: the rules without second moments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax

from sparrow.rules.base import PER_ELEMENT, Hyper, NotNegative, Rule, ScalarOrSchedule, Slot, Slots, norm, trust_ratio


@dataclasses.dataclass(frozen=True)
class SGD(Rule):
    """Stochastic gradient descent, with optional (Nesterov) momentum.

    Without momentum ``row -= learning_rate * grad``. With it::

        momentum' = h.momentum * momentum + grad
        row      -= learning_rate * (grad + h.momentum * momentum'   if nesterov else   momentum')

    Differs from dense SGD with momentum: a row that is not touched keeps its momentum and does not coast on it.

    >>> SGD(learning_rate=0.1).slots
    {}

    Reference: Sutskever et al., 2013, "On the importance of initialization and momentum in deep learning".
    """

    learning_rate: ScalarOrSchedule = 0.01
    momentum: NotNegative = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.slots:
            raise ValueError("SGD.nesterov=True needs a momentum above 0")

    @property
    def slots(self) -> Mapping[str, Slot]:
        return {"momentum": Slot(PER_ELEMENT)} if callable(self.momentum) or self.momentum else {}

    def update(self, row: jax.Array, grad: jax.Array, slots: Slots, h: Hyper) -> tuple[jax.Array, Slots]:
        if not slots:
            return row - h.learning_rate * grad, {}
        momentum = h.momentum * slots["momentum"] + grad
        direction = grad + h.momentum * momentum if self.nesterov else momentum
        return row - h.learning_rate * direction, {"momentum": momentum}


@dataclasses.dataclass(frozen=True)
class LarsSGD(Rule):
    """Layer-wise adaptive rate scaling, with the row as the layer::

        ratio     = eta * |row| / (|grad| + weight_decay * |row|)      (1 where either is zero)
        momentum' = h.momentum * momentum + learning_rate * ratio * (grad + weight_decay * row)
        row      -= momentum'

    Differs from dense LARS: norms are of one row, not of the matrix, and untouched rows keep their momentum.

    Reference: You, Gitman, Ginsburg, 2017, arXiv 1708.03888.
    """

    learning_rate: ScalarOrSchedule = 0.01
    momentum: NotNegative = 0.9
    weight_decay: NotNegative = 0.0
    eta: NotNegative = 0.001

    slots = {"momentum": Slot(PER_ELEMENT)}

    def update(self, row: jax.Array, grad: jax.Array, slots: Slots, h: Hyper) -> tuple[jax.Array, Slots]:
        row_norm = norm(row)
        ratio = trust_ratio(h.eta * row_norm, norm(grad) + h.weight_decay * row_norm)
        step = h.learning_rate * ratio * (grad + h.weight_decay * row)
        momentum = h.momentum * slots["momentum"] + step
        return row - momentum, {"momentum": momentum}
