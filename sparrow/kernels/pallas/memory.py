"""Rows and slots in memory, and the step that takes them from one state to the next."""

from __future__ import annotations

import functools
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
        table: jax.Array,
        mask: jax.Array,
        values: RowValues,
        grad: jax.Array,
    ) -> RowValues:
        """One step of every row of the tile, in its table; what it gives where ``mask`` is False has no meaning."""
        scalars = [_scalar(self.hyper, table, mask, i) for i in range(len(step.scalars))]
        bits = None
        if step.stochastic:
            row_in_table = row - gather(self.first_rows, table, mask, 0)
            bits = jax.vmap(functools.partial(noise, dim=tile.columns))(
                gather(self.seeds, table, mask, 0), row_in_table
            )
        one = padded(step, tile.columns)
        new_table, new_slots = jax.vmap(one)(values.table, grad, values.slots, scalars, bits)
        return RowValues(new_table, new_slots)


def _scalar(hyper: Any, table: jax.Array, mask: jax.Array, column: int) -> jax.Array:
    """(rows,) one hyper-parameter of each row's table."""
    if hyper.shape[0] == 1:  # one number for all
        return jnp.broadcast_to(hyper[0, column], table.shape)
    at = hyper.at[table, jnp.full_like(table, column)]
    return triton.load(at, mask=mask, other=jnp.float32(1))
