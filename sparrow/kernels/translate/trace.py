"""A row step as a jaxpr: the rule, the limits and the rounding, for any length of row."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from sparrow.kernels.rounding import noise
from sparrow.kernels.types import RowStep, stand_in

if TYPE_CHECKING:
    from jax.extend import core


@dataclasses.dataclass(frozen=True)
class TracedStep:
    """The jaxpr of a row step.

    Attributes:
      jaxpr: takes row, grad, the slots, the scalars, seed, index; gives the new row and the new slots.
      shape: (dim,) of the row: symbolic, or a number where the rule's code depends on it.
      num_slots: the number of slots.
      num_scalars: the number of scalars.
    """

    jaxpr: core.ClosedJaxpr
    shape: tuple[Any, ...]
    num_slots: int
    num_scalars: int


def trace(step: RowStep) -> TracedStep:
    """Trace ``step`` for its own dim."""
    return _trace_at(step, step.dim)


def trace_any_dim(step: RowStep) -> TracedStep:
    """Trace ``step`` for a row of unknown length. A rule that asks for the length as a number raises here."""
    (dim,) = jax.export.symbolic_shape("dim")
    return _trace_at(step, dim)


def _trace_at(step: RowStep, dim: Any) -> TracedStep:
    step = dataclasses.replace(step, dim=dim)

    def whole_step(row: jax.Array, grad: jax.Array, slots: Any, scalars: Any, seed: jax.Array, index: jax.Array) -> Any:
        return step(row, grad, slots, scalars, noise(seed, index, dim) if step.stochastic else None)

    jaxpr = jax.make_jaxpr(whole_step)(
        stand_in((dim,), step.dtype),
        stand_in((dim,)),
        [stand_in(sizes) for sizes in step.slot_shapes],
        [stand_in(()) for _ in step.scalars],
        stand_in((), jnp.uint32),
        stand_in((), jnp.int32),
    )
    return TracedStep(jaxpr, (dim,), len(step.slots), len(step.scalars))
