"""Constant, linear, exponential and hand-made schedules."""

from __future__ import annotations

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.fields import Count, CountOrZero, NotNegative, Positive
from sparrow.schedules.base import Schedule, ToEnd, WarmedUp, register_schedule, warm_up


@register_schedule("constant")
@dataclasses.dataclass(frozen=True)
class Constant(WarmedUp):
    """``lr``, after a linear warmup from ``warmup_learning_rate`` over ``warmup_steps``.

    >>> Constant(0.1)(1000)
    Array(0.1, dtype=float32)
    """

    warmup_steps: CountOrZero = 0
    warmup_learning_rate: NotNegative = 0.0

    def after(self, elapsed: jax.Array) -> jax.Array:
        return jnp.asarray(self.lr, float)


@register_schedule("linear")
@dataclasses.dataclass(frozen=True)
class Linear(ToEnd):
    """From ``lr`` in a straight line to ``end``, which it reaches at step ``steps`` and keeps.

    ``end + (lr - end) * (steps - step) / (steps - warmup_steps)``; ``steps`` counts the warmup in.

    >>> [round(float(Linear(1.0, 0.5, steps=10, warmup_steps=2)(step)), 4) for step in (0, 1, 2, 6, 10, 99)]
    [0.0, 0.5, 1.0, 0.75, 0.5, 0.5]
    """

    end: NotNegative
    steps: Count
    warmup_steps: CountOrZero = 0
    warmup_learning_rate: NotNegative = 0.0

    def share(self, remaining: jax.Array, total: int) -> jax.Array:
        return remaining / total


@register_schedule("exponential_decay")
@dataclasses.dataclass(frozen=True)
class ExponentialDecay(WarmedUp):
    """``max(lr * decay_factor ** (elapsed / decay_size), min_learning_rate)``, ``elapsed`` counted after warmup.

    With ``staircase`` the exponent is the integer part of ``elapsed / decay_size``. The warmup goes in a straight
    line from ``warmup_learning_rate`` to ``lr`` over ``warmup_size``; the minimum does not apply to it.

    >>> decay = ExponentialDecay(1.0, decay_size=2, decay_factor=0.5)
    >>> [float(decay(step)) for step in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    decay_size: Count
    decay_factor: Positive = 0.95
    staircase: bool = True
    warmup_size: CountOrZero = 0
    warmup_learning_rate: NotNegative = 0.0
    min_learning_rate: NotNegative = 0.0

    def after(self, elapsed: jax.Array) -> jax.Array:
        exponent = elapsed // self.decay_size if self.staircase else elapsed / self.decay_size
        # The logarithm is taken in double precision: a factor such as 0.9999, rounded to float32 and raised
        # to the 10,000th power, would be off by 3e-4.
        rate = self.lr * jnp.exp(exponent * math.log(self.decay_factor))
        return jnp.maximum(rate, self.min_learning_rate)


@register_schedule("manual_steps")
@dataclasses.dataclass(frozen=True)
class ManualSteps(Schedule):
    """``lr`` until step ``schedule_sizes[0]``, then ``learning_rates[0]`` until ``schedule_sizes[1]``, and so on.

    A rate holds up to and including its last step: ``learning_rates[i]`` begins at ``schedule_sizes[i] + 1``.
    The rates are absolute. With ``warmup`` the first stretch goes in a straight line from ``lr`` to
    ``learning_rates[0]`` in place of staying at ``lr``.

    >>> manual = ManualSteps(1.0, schedule_sizes=(2, 3), learning_rates=(0.5, 0.1))
    >>> [round(float(manual(step)), 4) for step in range(6)]
    [1.0, 1.0, 1.0, 0.5, 0.1, 0.1]
    """

    schedule_sizes: tuple[int, ...]
    learning_rates: tuple[float, ...]
    warmup: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes, rates = tuple(self.schedule_sizes), tuple(self.learning_rates)
        object.__setattr__(self, "schedule_sizes", sizes)
        object.__setattr__(self, "learning_rates", rates)
        if not sizes or len(sizes) != len(rates):
            raise ValueError(
                "ManualSteps needs as many learning_rates as schedule_sizes, and at least one;"
                f" got {len(rates)} and {len(sizes)}"
            )
        if not all(isinstance(size, int) and 0 <= size < 2**31 for size in sizes) or any(
            later <= earlier for earlier, later in itertools.pairwise(sizes)
        ):
            raise ValueError(f"ManualSteps.schedule_sizes must be integers that grow, got {sizes}")
        if any(not 0 <= rate < math.inf for rate in rates):
            raise ValueError(f"ManualSteps.learning_rates must be finite and at least 0, got {rates}")

    def rate(self, count: jax.Array) -> jax.Array:
        first, *_ = self.learning_rates
        rates = jnp.asarray((first if self.warmup else self.lr, *self.learning_rates), float)
        sizes = np.asarray(self.schedule_sizes, np.int32)
        line = sizes[0] if self.warmup else 0
        return warm_up(
            count,
            line,
            self.lr,
            first,
            lambda elapsed: rates[jnp.searchsorted(sizes, elapsed + line, side="left", method="compare_all")],
        )
