"""Every operation that a rule may use, as users write them: functions of a row, and functions to one number."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from sparrow.rules import PER_ELEMENT, PER_ROW, Rule, Slot

ELEMENT_WISE = [
    *(jnp.abs, jnp.sign, jnp.sqrt, lax.rsqrt, jnp.exp, jnp.exp2, jnp.expm1, jnp.log, jnp.log1p, jnp.tanh),
    *(jnp.sin, jnp.cos, jnp.floor, jnp.ceil, jnp.round, jax.nn.sigmoid, jax.nn.relu, jax.nn.softplus, jnp.square),
    *(jnp.cbrt, jax.scipy.special.erf, jnp.reciprocal, jnp.arctan, jnp.cosh, jnp.isfinite, jnp.signbit, jnp.isnan),
    *(jnp.tan, jnp.sinh, lax.erfc, lax.asinh, lax.neg, lax.lgamma, lax.stop_gradient),
    lambda x: lax.acosh(1.5 + x * x) + lax.atanh(0.5 * jnp.tanh(x)) + lax.asin(0.5 * jnp.tanh(x)),
    lambda x: lax.acos(0.5 * jnp.tanh(x)) + lax.atan2(x, 1.0 + x * x) + lax.nextafter(x, 2.0 * x),
    lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO) + lax.rem(x, 0.3),
    lambda x: jnp.copy(x) + lax.logistic(x) + lax.clamp(-0.25, x, 0.75),
    lambda x: (jnp.abs(x) + 0.5) ** (0.1 * x),
    lambda x: x**3,
    lambda x: x**-2,
    lambda x: jnp.abs(x) ** 0.3,
    lambda x: jnp.clip(x, -0.5, 0.5),
    lambda x: jnp.where((x > 0) & ~(x > 1) | (x < -1), x, -x),
    lambda x: jnp.where((x >= 0) ^ (x <= 1) | (x == 0.5) | (x != x), x, 2 * x),
    lambda x: jnp.maximum(x, 0.1) + jnp.minimum(x, 0.2) % 0.3,
    lambda x: (x * 100).astype(jnp.int32) * 3 - 7,
    lambda x: (x * 1e30).astype(jnp.int32) >> 3,
    lambda x: (jnp.abs(x) * 1000).astype(jnp.uint32) << 5 ^ jnp.uint32(77),
    lambda x: lax.shift_right_logical((x * 1000).astype(jnp.int32), 40) + ~(x * 10).astype(jnp.int32),
    lambda x: jnp.nan_to_num(jnp.log(x), nan=-3.0),
    lambda x: lax.bitcast_convert_type(x, jnp.int32) & 0xFF,
    lambda x: x.astype(jnp.bfloat16).astype(jnp.float32) + x.astype(jnp.float16).astype(jnp.float32),
    lambda x: jnp.arange(x.shape[0], dtype=jnp.float32) * x,
    lambda x: jnp.broadcast_to(jnp.sum(x), x.shape),
    lambda x: jnp.full_like(x, 2.0),
]

PER_ROW_NUMBERS = [
    *(jnp.sum, jnp.mean, jnp.max, jnp.min, jnp.linalg.norm, jnp.var, jnp.std),
    lambda x: jnp.prod(1 + 0.1 * x),
    lambda x: jnp.dot(x, x),
    lambda x: jnp.mean(x, keepdims=True).reshape(()) + jnp.squeeze(jnp.max(x, keepdims=True)),
    lambda x: jnp.sum(x - jnp.mean(x)) + jnp.max(x / jnp.max(jnp.abs(x))),
    lambda x: jnp.sum(x > 0).astype(jnp.float32) / x.shape[0],
    lambda x: jax.nn.logsumexp(x),
    lambda x: jnp.max((x * 100).astype(jnp.int32)).astype(jnp.float32),
]

AT_A_TIME = 14


@dataclasses.dataclass(frozen=True)
class ElementWise(Rule):
    """A share of `ELEMENT_WISE`, each with a slot of its own, so that one compilation does for many."""

    part: str = "0"

    @property
    def slots(self):
        return {f"s{i}": Slot(PER_ELEMENT) for i in range(len(self.functions()))}

    def functions(self):
        return ELEMENT_WISE[int(self.part) * AT_A_TIME :][:AT_A_TIME]

    def update(self, row, grad, slots, h):
        x = grad - 0.5 * row
        return row - grad, {f"s{i}": f(x).astype(jnp.float32) for i, f in enumerate(self.functions())}


@dataclasses.dataclass(frozen=True)
class PerRow(Rule):
    """All of `PER_ROW_NUMBERS`, and a row three passes deep, with vectors of the first kept for the last."""

    slots = {f"s{i}": Slot(PER_ROW) for i in range(len(PER_ROW_NUMBERS))}

    def update(self, row, grad, slots, h):
        x = grad - 0.5 * row
        new = {f"s{i}": f(x) for i, f in enumerate(PER_ROW_NUMBERS)}
        scaled = x / (1 + new["s0"] ** 2)
        return row - h.learning_rate * scaled / (1 + jnp.sum(scaled * scaled)) * jnp.where(x > 0, 1.0, 2.0), new


RULES = [*(ElementWise(part=str(i)) for i in range(-(-len(ELEMENT_WISE) // AT_A_TIME))), PerRow()]
