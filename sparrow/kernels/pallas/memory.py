"""Rows and slots in memory, and the step that takes them from one state to the next."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.pallas import triton

from sparrow.kernels.pallas.blocks import Tile, gather, scatter
from sparrow.kernels.pallas.padded import padded
from sparrow.kernels.rounding import noise
from sparrow.kernels.types import RowStep, StepScalars

ONCE = {"eviction_policy": "evict_first"}  # a row is read and written once a step: it need not stay in the cache


def scalar_arrays(step: RowStep, scalars: StepScalars) -> tuple[jax.Array, ...]:
    """The arrays of ``scalars`` that a kernel takes: the last one is left out where it is not given or not read."""
    *always, logical_rows = scalars
    return (*always, logical_rows) if step.stochastic and logical_rows is not None else tuple(always)


class RowValues(NamedTuple):
    """What a program holds of its rows."""

    table: jax.Array  # (rows, columns)
    slots: tuple[jax.Array, ...]  # (rows, columns) or (rows,) each


class RowRefs(NamedTuple):
    """The table, its slots and the numbers of the step, in memory."""

    table: Any
    slots: tuple[Any, ...]
    scalars: StepScalars

    @classmethod
    def of(cls, refs: Sequence[Any], num_scalars: int, num_state: int) -> RowRefs:
        """From a kernel's last arguments: `scalar_arrays` first; table and slots are the last ``num_state`` of them."""
        table, *slots = refs[len(refs) - num_state :]
        return cls(table, tuple(slots), StepScalars(*refs[:num_scalars]))

    @property
    def stacked(self) -> bool:
        """Whether the stack holds more than one table."""
        return bool(self.scalars.first_rows.shape[0] > 1)

    def load(self, tile: Tile, row: jax.Array, mask: jax.Array) -> RowValues:
        """Rows ``row[k]`` where ``mask[k]``."""
        slots = (
            tile.load(ref, row, mask, **ONCE) if len(ref.shape) == 2 else gather(ref, row, mask, 0)
            for ref in self.slots
        )
        return RowValues(tile.load(self.table, row, mask, **ONCE), tuple(slots))

    def store(self, tile: Tile, row: jax.Array, mask: jax.Array, values: RowValues) -> None:
        """Writes rows ``row[k]`` where ``mask[k]``."""
        tile.store(self.table, row, mask, values.table, **ONCE)
        for ref, value in zip(self.slots, values.slots, strict=True):
            if len(ref.shape) == 2:
                tile.store(ref, row, mask, value, **ONCE)
            else:
                scatter(ref, row, mask, value)

    def apply(
        self,
        step: RowStep,
        tile: Tile,
        row: jax.Array,
        table: jax.Array | None,
        mask: jax.Array,
        values: RowValues,
        grad: jax.Array,
    ) -> RowValues:
        """One step of every row of the tile; what it gives where ``mask`` is False has no meaning.

        ``table``: of the stack, which each row belongs to; None where there is but one.
        """

        def of_table(ref: Any, *column: int) -> jax.Array:
            if table is None:
                return jnp.broadcast_to(ref[(0, *column)], row.shape)
            at = ref.at[(table, *(jnp.full_like(table, i) for i in column))]
            return triton.load(at, mask=mask, other=jnp.ones((), ref.dtype))

        hyper, seeds, first_rows, logical_rows = self.scalars
        scalars = [of_table(hyper, i) for i in range(len(step.scalars))]
        bits = None
        if step.stochastic:
            draw = tile.over_rows(functools.partial(noise, dim=tile.columns))
            given = None if logical_rows is None else gather(logical_rows, row, mask, 0)
            bits = draw(of_table(seeds), row - of_table(first_rows) if given is None else given)
        one = padded(step, tile.columns)
        new_table, new_slots = tile.over_rows(one)(values.table, grad, values.slots, scalars, bits)
        return RowValues(new_table, new_slots)
