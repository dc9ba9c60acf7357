"""The inputs of a kernel: lookups, row gradients, numbers; and the step of one row, once for all backends."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sparrow.kernels.rounding import round_stochastic
from sparrow.rules import PER_ROW, Rule


def stand_in(shape: tuple[Any, ...], dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of an array, without one."""
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Lookups:
    """The ids of one stack for one batch, in bag order: the entries of bag 0, then of bag 1, and so on.

    An entry whose id is ``num_rows`` of the stack or more is padding, or an id to ignore: it reads zeros and writes
    nothing. Where every bag holds exactly one entry, ``bags`` and ``offsets`` are None: entry i is bag i.

    Attributes:
      ids: (N,) int32, the row in the stack.
      bags: (N,) int32, the bag of each entry; ``num_bags`` for padding.
      offsets: (num_bags + 1,) int32, where the entries of each bag begin and end.
      gains: (N,) float32, the factor of each row, or None where all are 1.
      num_bags: the number of bags; static.
      order: the entries sorted by row, in the backend's own format, where a lookup has made them; else None.
    """

    ids: jax.Array
    bags: jax.Array | None
    offsets: jax.Array | None
    gains: jax.Array | None
    num_bags: int = dataclasses.field(metadata={"static": True})
    order: jax.Array | None = None


class EntryGradients(NamedTuple):
    """The gradient of one stack's rows, not yet summed.

    Entry i adds ``gains[i] * bag_grads[bags[i]]`` to row ``ids[i]``, in float32. Fields as in `Lookups`; any order of
    entries.
    """

    ids: jax.Array  # (N,) int32
    bags: jax.Array | None  # (N,) int32; None: entry i is bag i
    gains: jax.Array | None  # (N,) float32; None: all 1
    bag_grads: jax.Array  # (num_bags, dim) float32, or bfloat16 or float16 as the model made them
    order: jax.Array | None = None  # as in `Lookups`: of these very ids, bags and gains


class StepScalars(NamedTuple):
    """The numbers of one optimizer step, one row per table of the stack.

    Stochastic rounding is keyed by the table's seed and the row's number in its logical table. That number is
    ``row - first_rows[table]``, unless ``logical_rows`` gives it: a stack whose rows are renumbered, such as a cache or
    a shard, passes it, so that every row gets the bits it would get in the complete table.
    """

    hyper: jax.Array  # (num_tables, num_scalars) float32, columns as in RowStep.scalars
    seeds: jax.Array  # (num_tables,) uint32, for stochastic rounding
    first_rows: jax.Array  # (num_tables,) int32, where each table begins in the stack
    logical_rows: jax.Array | None = None  # (num_rows,) int32, by row of the stack; None: row - first_rows[table]


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
