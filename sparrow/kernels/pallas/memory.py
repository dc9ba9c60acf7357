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
from sparrow.kernels.types import RowStep

ONCE = {"eviction_policy": "evict_first"}  # a row is read and written once a step: it need not stay in the cache


class RowValues(NamedTuple):
    """What a program holds of its rows."""

    table: jax.Array  # (rows, columns)
    slots: tuple[jax.Array, ...]  # (rows, columns) or (rows,) each


class RowRefs(NamedTuple):
    """The table, its slots and the numbers of the step, in memory."""

    table: Any
    slots: tuple[Any, ...]
    hyper: Any
    seeds: Any
    first_rows: Any

    @classmethod
    def of(cls, refs: Sequence[Any], num_state: int) -> RowRefs:
        """From a kernel's last arguments, `StepScalars` first; table and slots are the last ``num_state`` of them."""
        hyper, seeds, first_rows, *_ = refs
        table, *slots = refs[len(refs) - num_state :]
        return cls(table, tuple(slots), hyper, seeds, first_rows)

    @property
    def stacked(self) -> bool:
        """Whether the stack holds more than one table."""
        return bool(self.first_rows.shape[0] > 1)

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

        scalars = [of_table(self.hyper, i) for i in range(len(step.scalars))]
        bits = None
        if step.stochastic:
            draw = tile.over_rows(functools.partial(noise, dim=tile.columns))
            bits = draw(of_table(self.seeds), row - of_table(self.first_rows))
        one = padded(step, tile.columns)
        new_table, new_slots = tile.over_rows(one)(values.table, grad, values.slots, scalars, bits)
        return RowValues(new_table, new_slots)
