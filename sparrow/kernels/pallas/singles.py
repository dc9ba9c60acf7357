"""Rows that one entry touches: a step and no sum. In most batches they are the larger part of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from sparrow.kernels.pallas.blocks import Entries, Place, Tile, call, gather, struct
from sparrow.kernels.pallas.memory import RowRefs, scalar_arrays
from sparrow.kernels.pallas.order import Pieces
from sparrow.kernels.types import RowStep, StepScalars


class _Taken(NamedTuple):
    """The pieces of a tile."""

    row: jax.Array
    table: jax.Array | None
    valid: jax.Array  # whether there is a piece
    place: Place  # of its gradient


def step_singles(
    step: RowStep,
    state: tuple[jax.Array, ...],
    work: Pieces,
    rows: jax.Array,
    summands: tuple[jax.Array, ...],
    reader: Callable[..., Entries],
    scalars: StepScalars,
    tile: Tile,
    programs: int,
) -> tuple[jax.Array, ...]:
    """Steps the rows of the pieces of one entry.

    Args:
      step: what to do to each row.
      state: table and slots.
      work: the pieces.
      rows: (N,) the rows that the entries touch, sorted.
      summands: arrays that hold the entries' gradients.
      reader: makes of them, in a kernel, the entries.
      scalars: the numbers of the step.
      tile: what a program has in hand.
      programs: how many go round.
    """
    numbers = scalar_arrays(step, scalars)
    inputs = (work.starts, work.tables, work.singles, rows, *summands, *numbers, *state)
    first_state, most = len(inputs) - len(state), work.starts.shape[0]
    programs = min(-(-most // tile.rows), programs)

    def kernel(*refs: Any) -> None:
        starts_ref, tables_ref, count_ref, rows_ref, *refs_left = refs
        entries = reader(*refs_left[: len(summands)])
        rows = RowRefs.of(refs_left[len(summands) :], len(numbers), len(state))
        program, count = pl.program_id(0), count_ref[0]

        def take(i: jax.Array) -> _Taken:
            piece = (program + i * programs) * tile.rows + tile.lanes()
            valid, at = piece < count, most - 1 - piece
            position = gather(starts_ref, at, valid, 0)
            table = gather(tables_ref, at, valid, 0) if rows.stacked else None
            return _Taken(gather(rows_ref, position, valid, 0), table, valid, entries.locate(position, valid))

        def one_round(i: jax.Array, now: _Taken) -> _Taken:
            values = rows.load(tile, now.row, now.valid)
            grad = tile.fetch(entries.values, now.place, now.valid)
            following = take(i + 1)
            values = rows.apply(step, tile, now.row, now.table, now.valid, values, grad)
            rows.store(tile, now.row, now.valid, values)
            return following

        tiles = lax.div(count + (tile.rows - 1), tile.rows)
        rounds = lax.div(tiles - program + (programs - 1), programs)
        lax.fori_loop(0, rounds, one_round, take(jnp.int32(0)))

    outputs = tuple(struct(x.shape, x.dtype) for x in state)
    return call(kernel, programs, inputs, outputs, tile.warps, {first_state + i: i for i in range(len(state))})
