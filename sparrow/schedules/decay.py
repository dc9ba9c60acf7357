"""Constant, linear, exponential and hand-made schedules."""

from __future__ import annotations

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.fields import integers_of, numbers_of
from sparrow.schedules.base import Schedule, check_frozen_end, check_warmup_within, register_schedule, warm_up


@register_schedule("constant")
@dataclasses.dataclass(frozen=True)
class Constant(Schedule):
    """``lr``, after a linear warmup from ``warmup_learning_rate`` over ``warmup_steps``.

    >>> Constant(0.1)(1000)
    Array(0.1, dtype=float32)
    """

    warmup_steps: int = 0
    warmup_learning_rate: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        integers_of(self, "warmup_steps", at_least=0)
        numbers_of(self, "warmup_learning_rate", at_least=0)

    def rate(self, count: jax.Array) -> jax.Array:
        return warm_up(
            count, self.warmup_steps, self.warmup_learning_rate, self.lr, lambda _: jnp.asarray(self.lr, float)
        )


@register_schedule("linear")
@dataclasses.dataclass(frozen=True)
class Linear(Schedule):
    """From ``lr`` in a straight line to ``end``, which it reaches at step ``steps`` and keeps.

    ``end + (lr - end) * (steps - step) / (steps - warmup_steps)``; ``steps`` counts the warmup in.

    >>> [round(float(Linear(1.0, 0.5, steps=10, warmup_steps=2)(step)), 4) for step in (0, 1, 2, 6, 10, 99)]
    [0.0, 0.5, 1.0, 0.75, 0.5, 0.5]
    """

    end: float
    steps: int
    warmup_steps: int = 0
    warmup_learning_rate: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers_of(self, "end", "warmup_learning_rate", at_least=0)
        check_warmup_within(self, self.warmup_steps, self.steps)
        check_frozen_end(self, self.lr, self.end)

    def rate(self, count: jax.Array) -> jax.Array:
        total = self.steps - self.warmup_steps
        return warm_up(
            count,
            self.warmup_steps,
            self.warmup_learning_rate,
            self.lr,
            lambda elapsed: self.end + (self.lr - self.end) * (jnp.maximum(total - elapsed, 0) / total),
        )


@register_schedule("exponential_decay")
@dataclasses.dataclass(frozen=True)
class ExponentialDecay(Schedule):
    """``max(lr * decay_factor ** (elapsed / decay_size), min_learning_rate)``, ``elapsed`` counted after warmup.

    With ``staircase`` the exponent is the integer part of ``elapsed / decay_size``. The warmup goes in a straight
    line from ``warmup_learning_rate`` to ``lr`` over ``warmup_size``; the minimum does not apply to it.

    >>> decay = ExponentialDecay(1.0, decay_size=2, decay_factor=0.5)
    >>> [float(decay(step)) for step in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    decay_size: int
    decay_factor: float = 0.95
    staircase: bool = True
    warmup_size: int = 0
    warmup_learning_rate: float = 0.0
    min_learning_rate: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        integers_of(self, "decay_size", at_least=1)
        integers_of(self, "warmup_size", at_least=0)
        numbers_of(self, "decay_factor", above=0)
        numbers_of(self, "warmup_learning_rate", "min_learning_rate", at_least=0)

    def rate(self, count: jax.Array) -> jax.Array:
        def decayed(elapsed: jax.Array) -> jax.Array:
            exponent = elapsed // self.decay_size if self.staircase else elapsed / self.decay_size
            # The logarithm is taken in double precision: a factor such as 0.9999, rounded to float32 and raised
            # to the 10,000th power, would be off by 3e-4.
            rate = self.lr * jnp.exp(exponent * math.log(self.decay_factor))
            return jnp.maximum(rate, self.min_learning_rate)

        return warm_up(count, self.warmup_size, self.warmup_learning_rate, self.lr, decayed)


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
