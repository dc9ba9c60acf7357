"""Cosine schedules: one descent, annealing after a warmup, annealing with warm restarts."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from sparrow.fields import Count, CountOrZero, NotNegative, Positive
from sparrow.schedules.base import ToEnd, WarmedUp, half_cosine, register_schedule


@register_schedule("cosine")
@dataclasses.dataclass(frozen=True)
class Cosine(ToEnd):
    """From ``lr`` along half a cosine to ``end``, which it reaches at step ``steps`` and keeps.

    ``end + (lr - end) * ((1 + cos(pi * t)) / 2) ** exponent`` with ``t = (step - warmup_steps) / (steps -
    warmup_steps)``; ``steps`` counts the warmup in.

    >>> [round(float(Cosine(1.0, 0.0, steps=10, warmup_steps=2)(step)), 4) for step in (0, 1, 2, 6, 10, 99)]
    [0.0, 0.5, 1.0, 0.5, 0.0, 0.0]

    Loshchilov & Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, https://arxiv.org/abs/1608.03983
    """

    end: NotNegative
    steps: Count
    warmup_steps: CountOrZero = 0
    exponent: Positive = 1.0
    warmup_learning_rate: NotNegative = 0.0

    def share(self, remaining: jax.Array, total: int) -> jax.Array:
        return half_cosine(remaining, total) ** self.exponent


@register_schedule("cosine_annealing")
@dataclasses.dataclass(frozen=True)
class CosineAnnealing(WarmedUp):
    """From ``lr`` along half a cosine to ``min_learning_rate`` in ``t_max`` after the warmup, and stays there.

    ``min + (lr - min) * (1 + cos(pi * elapsed / t_max)) / 2`` with ``elapsed = min(step - warmup_size, t_max)``.
    The warmup goes in a straight line from ``warmup_learning_rate`` to ``lr``.

    >>> annealing = CosineAnnealing(0.01, t_max=4, min_learning_rate=0.002)
    >>> [round(float(annealing(step)), 4) for step in range(6)]
    [0.01, 0.0088, 0.006, 0.0032, 0.002, 0.002]
    """

    t_max: Count
    warmup_size: CountOrZero = 0
    warmup_learning_rate: NotNegative = 0.0
    min_learning_rate: NotNegative = 0.0

    def after(self, elapsed: jax.Array) -> jax.Array:
        return _anneal(self, jnp.maximum(self.t_max - elapsed, 0), self.t_max)


@register_schedule("cosine_annealing_warm_restarts")
@dataclasses.dataclass(frozen=True)
class CosineAnnealingWarmRestarts(WarmedUp):
    """Cosine annealing that starts again: cycle ``i`` lasts ``t_0 * t_mult**i``.

    ``min + (lr - min) * (1 + cos(pi * elapsed_in_cycle / cycle)) / 2``. Where each cycle starts is computed in
    integers, so every restart happens at its very step, whatever ``t_mult`` (a floor of a floating-point
    logarithm misses some: ``t_mult=3`` at the sixth restart).

    >>> restarts = CosineAnnealingWarmRestarts(1.0, t_0=1, t_mult=3)
    >>> [step for step in range(130) if restarts(step) == 1.0]
    [0, 1, 4, 13, 40, 121]

    Loshchilov & Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, https://arxiv.org/abs/1608.03983
    """

    t_0: Count
    t_mult: Count = 1
    warmup_size: CountOrZero = 0
    warmup_learning_rate: NotNegative = 0.0
    min_learning_rate: NotNegative = 0.0

    def after(self, elapsed: jax.Array) -> jax.Array:
        if self.t_mult == 1:
            return _anneal(self, self.t_0 - elapsed % self.t_0, self.t_0)
        starts = [0]
        while (start := starts[-1] * self.t_mult + self.t_0) < 2**31:  # t_0 (1 + t_mult + t_mult**2 + ...)
            starts.append(start)
        # The last cycle may be longer than an int32 can hold; as a float it is exact up to 2**24 steps.
        lengths = jnp.asarray([self.t_0 * self.t_mult**i for i in range(len(starts))], float)
        starts_at = jnp.asarray(starts)
        cycle = jnp.searchsorted(starts_at, elapsed, side="right", method="compare_all") - 1
        remaining = lengths[cycle] - (elapsed - starts_at[cycle])
        return _anneal(self, remaining, lengths[cycle])


def _anneal(
    schedule: CosineAnnealing | CosineAnnealingWarmRestarts, remaining: jax.Array, total: jax.Array | int
) -> jax.Array:
    minimum = schedule.min_learning_rate
    return minimum + (schedule.lr - minimum) * half_cosine(remaining, total)
