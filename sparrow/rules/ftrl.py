"""FTRL-Proximal: the row is worked out anew from its history, with l1 that gives exact zeros."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import jax
import jax.numpy as jnp

from sparrow import fields
from sparrow.rules.base import PER_ELEMENT, Hyper, NotNegative, Rule, ScalarOrSchedule, Slot, Slots


@dataclasses.dataclass(frozen=True)
class FTRL(Rule):
    """Follow the regularized leader. With power = -learning_rate_power::

        accumulator' = accumulator + grad**2
        p, p'        = accumulator ** power, accumulator' ** power

        multiply_linear_by_learning_rate=False:
        linear'      = linear + grad - (p' - p) / learning_rate * row
        row          = (clip(linear', -l1, l1) - linear') / ((p' + beta) / learning_rate + 2 * l2)

        multiply_linear_by_learning_rate=True (linear holds learning_rate times the above):
        linear'      = linear + learning_rate * grad - (p' - p) * row
        row          = (clip(linear', -l1 * rate, l1 * rate) - linear') / (p' + beta + 2 * rate * l2)

    The row is recomputed from ``linear``: with ``initial_linear=0`` the first touch discards nearly all of the
    row's initial value, as every FTRL does. A rate of 0 changes nothing at all.

    >>> FTRL(l1=0.1).kind() == FTRL(l1=0.0).kind()   # may share one stack
    True

    Reference: McMahan et al., 2013, "Ad click prediction: a view from the trenches".
    """

    learning_rate: ScalarOrSchedule = 0.01
    learning_rate_power: Annotated[ScalarOrSchedule, fields.Bounds(at_most=0)] = -0.5
    l1: NotNegative = 0.0
    l2: NotNegative = 0.0
    beta: NotNegative = 0.0
    multiply_linear_by_learning_rate: bool = False
    initial_accumulator: fields.NotNegative = 0.1
    initial_linear: Annotated[float, fields.Bounds()] = 0.0

    slots = {
        "accumulator": Slot(PER_ELEMENT, init="initial_accumulator"),
        "linear": Slot(PER_ELEMENT, init="initial_linear"),
    }

    def update(self, row: jax.Array, grad: jax.Array, slots: Slots, h: Hyper) -> tuple[jax.Array, Slots]:
        moves = h.learning_rate > 0
        rate = jnp.where(moves, h.learning_rate, 1.0)
        accumulator = slots["accumulator"] + grad * grad
        before = jnp.power(slots["accumulator"], -h.learning_rate_power)
        after = jnp.power(accumulator, -h.learning_rate_power)
        if self.multiply_linear_by_learning_rate:
            linear = slots["linear"] + rate * grad - (after - before) * row
            threshold = rate * h.l1
            curvature = after + h.beta + 2.0 * rate * h.l2
        else:
            linear = slots["linear"] + grad - (after - before) / rate * row
            threshold = h.l1
            curvature = (after + h.beta) / rate + 2.0 * h.l2
        solution = (jnp.clip(linear, -threshold, threshold) - linear) / jnp.where(curvature > 0, curvature, 1.0)
        return jnp.where(moves & (curvature > 0), solution, row), {
            "accumulator": jnp.where(moves, accumulator, slots["accumulator"]),
            "linear": jnp.where(moves, linear, slots["linear"]),
        }
