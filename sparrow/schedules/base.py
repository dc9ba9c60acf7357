"""The base of all schedules: the count, the warmup, the rate of 0, and the registry of names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp

from sparrow.fields import Count, CountOrZero, NotNegative, check, is_zero
from sparrow.registry import FUNCTIONS, Registry

DESCRIPTIONS: Final = {
    "decay_factor": "The factor of each decay.",
    "decay_size": "The size of one decay.",
    "end": "The last rate.",
    "exponent": "The power of the cosine.",
    "learning_rates": "The rate of each stretch after the first.",
    "min_learning_rate": "The smallest rate.",
    "schedule_sizes": "The counts at which the rate changes.",
    "staircase": "Whether the rate falls in stairs instead of smoothly.",
    "steps": "The count at which the last rate is reached, warmup included.",
    "t_0": "The size of the first cycle.",
    "t_max": "The size of the half cosine.",
    "t_mult": "The factor by which each cycle is longer than the one before.",
    "warmup": "Whether the rate rises in a line to the first change.",
    "warmup_learning_rate": "The first rate of the warmup.",
    "warmup_size": "The size of the warmup.",
    "warmup_steps": "The size of the warmup.",
}


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A learning rate as a pure function of the optimizer step: ``schedule(step) -> rate``.

    A schedule is its own config record: a frozen dataclass, fully described by its fields. It is called with the
    number of optimizer steps already taken (0 at the first update), works under ``jit`` and on arrays of steps,
    and can go wherever optax takes a schedule. Integers stay integers until the last division, and distances are
    counted from where the rate is small, so that rates near 0 keep float32's relative accuracy.

    Attributes:
      lr: the base rate. A base rate of 0 stays 0 whatever the other fields: that is how a group is frozen.
      by_epoch: sizes count epochs in place of steps.
      steps_per_epoch: optimizer steps in one epoch; giving it implies ``by_epoch``. A config may leave it out:
        `with_steps_per_epoch` fills it in when the data is known.

    Subclasses write `rate`.
    """

    lr: NotNegative
    by_epoch: bool = dataclasses.field(default=False, kw_only=True)
    steps_per_epoch: Count | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check(self)
        if self.steps_per_epoch is not None:
            object.__setattr__(self, "by_epoch", True)

    def __call__(self, step: jax.typing.ArrayLike) -> jax.Array:
        """Return the rate of the update after ``step`` optimizer steps."""
        count = jnp.asarray(step)
        if not jnp.issubdtype(count.dtype, jnp.integer):
            raise TypeError(
                f"{type(self).__name__} counts whole steps; got a step of type {count.dtype} (cast it to an integer)"
            )
        # optax.join_schedules also asks for steps before 0, and throws the answer away.
        count = jnp.maximum(count, 0)
        if self.by_epoch:
            if self.steps_per_epoch is None:
                raise ValueError(
                    f"{type(self).__name__} counts epochs (by_epoch) and needs the field steps_per_epoch;"
                    " see schedules.with_steps_per_epoch"
                )
            count = count // self.steps_per_epoch
        if is_zero(self.lr):
            return jnp.zeros(count.shape)
        return jnp.broadcast_to(self.rate(count), count.shape)

    def rate(self, count: jax.Array) -> jax.Array:
        """Return the rate after ``count`` steps (or epochs); ``count`` is a non-negative integer array."""
        raise NotImplementedError(f"{type(self).__name__} must define rate(count)")


SCHEDULES: Registry[Callable[[Any], Any]] = Registry("schedule", FUNCTIONS, descriptions=DESCRIPTIONS)
register_schedule = SCHEDULES.register


def warm_up(
    count: jax.Array, size: int, start: float, peak: float, after: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """``start + (peak - start) * count / size`` while ``count < size``, then ``after(count - size)``."""
    if size == 0:
        return after(count)
    rising = start + (peak - start) * (count / size)
    return jnp.where(count < size, rising, after(jnp.maximum(count - size, 0)))


class WarmedUp(Schedule):
    """Begins with a straight line from ``warmup_learning_rate`` to ``lr``, over ``warmup_size`` or ``warmup_steps``.

    Subclasses write `after`.
    """

    warmup_learning_rate: NotNegative

    def rate(self, count: jax.Array) -> jax.Array:
        size = getattr(self, "warmup_size", 0) or getattr(self, "warmup_steps", 0)
        return warm_up(count, size, self.warmup_learning_rate, self.lr, self.after)

    def after(self, elapsed: jax.Array) -> jax.Array:
        """Return the rate at ``elapsed`` after the warmup."""
        raise NotImplementedError


class ToEnd(WarmedUp):
    """Reaches the rate ``end`` at step ``steps``, which counts the warmup in, and keeps it."""

    end: NotNegative
    steps: Count
    warmup_steps: CountOrZero

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup_steps >= self.steps:
            raise ValueError(
                f"{type(self).__name__}.warmup_steps must be less than steps (which counts the warmup in),"
                f" got warmup_steps={self.warmup_steps} and steps={self.steps}"
            )
        if is_zero(self.lr) and not is_zero(self.end):
            raise ValueError(
                f"{type(self).__name__}.lr is 0, which freezes the parameters at every step, but end is {self.end!r};"
                " give end=0 to freeze, or a small lr (such as 1e-8) to rise from"
            )

    def after(self, elapsed: jax.Array) -> jax.Array:
        total = self.steps - self.warmup_steps
        return self.end + (self.lr - self.end) * self.share(jnp.maximum(total - elapsed, 0), total)

    def share(self, remaining: jax.Array, total: int) -> jax.Array:
        """Return the share of the way from ``lr`` to ``end`` that is left."""
        raise NotImplementedError


def half_cosine(remaining: jax.Array, total: jax.Array | int) -> jax.Array:
    """``(1 + cos(pi * elapsed / total)) / 2`` from ``remaining = total - elapsed``.

    Written as ``sin(pi/2 * remaining / total)**2``, which loses nothing where the cosine nears -1.
    """
    return jnp.square(jnp.sin(jnp.pi / 2 * (remaining / total)))


def with_steps_per_epoch(schedule: Callable[[Any], Any], steps_per_epoch: int) -> Callable[[Any], Any]:
    """Return a schedule that counts epochs with the length of an epoch; any other schedule is returned unchanged.

    >>> from sparrow import schedules
    >>> by_epoch = schedules.exponential_decay(1.0, decay_size=1, decay_factor=0.5, by_epoch=True)
    >>> float(with_steps_per_epoch(by_epoch, 10)(25))
    0.25
    """
    if isinstance(schedule, Schedule) and schedule.by_epoch and schedule.steps_per_epoch is None:
        return dataclasses.replace(schedule, steps_per_epoch=steps_per_epoch)
    return schedule
