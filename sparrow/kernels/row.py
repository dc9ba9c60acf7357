"""The whole step of one row, once for all backends: the rule, the limits, the rounding."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace

import jax
import jax.numpy as jnp

from sparrow.kernels.rounding import round_stochastic
from sparrow.rules import PER_ROW, Rule

LIMITS = ("min_value", "max_value")


@dataclasses.dataclass(frozen=True)
class RowStep:
    """The step of one touched row of a stack. Static and hashable.

    Every backend runs exactly this function: ``xla`` maps it over the touched rows, ``native`` and ``cuda`` turn its
    jaxpr into C++ and CUDA.

    Attributes:
      rule: the rule without its numbers (`Rule.without_numbers`).
      slots: name and layout of each slot, in the order that the kernels keep them.
      scalars: the names of the hyper-parameters, in the order of `StepScalars.hyper`'s columns.
      dim: the length of a row.
      dtype: the table's dtype.
      limits: whether rows are clamped to ``[min_value, max_value]`` of the scalars.
      stochastic: whether a 16-bit row is rounded stochastically.
    """

    rule: Rule
    slots: tuple[tuple[str, str], ...]
    scalars: tuple[str, ...]
    dim: int
    dtype: str
    limits: bool = False
    stochastic: bool = False

    @property
    def slot_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each slot for one row: () or (dim,)."""
        return tuple(() if layout == PER_ROW else (self.dim,) for _, layout in self.slots)

    def __call__(
        self,
        row: jax.Array,
        grad: jax.Array,
        slots: Sequence[jax.Array],
        scalars: Sequence[jax.Array],
        noise: jax.Array | None = None,
    ) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        """One row's step.

        Args:
          row: (dim,) of the table's dtype.
          grad: (dim,) float32, the row's summed gradient.
          slots: float32, shapes as in `slot_shapes`.
          scalars: float32 numbers, one per name of `scalars`.
          noise: (dim,) uint32 from `rounding.noise`; only where `stochastic`.

        Returns:
          The new row and the new slots, of the same dtypes.
        """
        h = SimpleNamespace(**dict(zip(self.scalars, scalars, strict=True)))
        named = {name: value for (name, _), value in zip(self.slots, slots, strict=True)}
        new_row, new_slots = self.rule.update(row.astype(jnp.float32), grad, named, h)
        if self.limits:
            new_row = jnp.clip(new_row, h.min_value, h.max_value)
        if self.stochastic and noise is not None:
            new_row = round_stochastic(new_row, noise, jnp.dtype(self.dtype))
        return new_row.astype(self.dtype), tuple(new_slots[name] for name, _ in self.slots)
