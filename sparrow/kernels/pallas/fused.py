"""The fused update: sum the gradients of each touched row, step the row, write it back, in one pass over memory.

1. Sort the entries by row, and cut the segments into pieces (`order`).
2. Pieces of one entry need no sum, and more of them fit in a program's hands: they go first (`singles`).
3. Each program takes one or a few of the other pieces at a time: it fetches their rows, sums their gradients in
   registers, and steps and writes each row whose segment is whole. The pieces of a cut segment leave their sums.
4. The sums that the pieces of one segment left lie side by side: folding them is the same problem with far fewer
   entries. The levels go on until a program can walk through what is left of any segment.

Every row is written once and every sum has a fixed order: the same bits every time. The work is balanced whether each
row is touched once or one row takes the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from sparrow.kernels.pallas.blocks import Entries, Place, Tile, call, gather, struct
from sparrow.kernels.pallas.memory import RowRefs, scalar_arrays
from sparrow.kernels.pallas.order import Pieces, Sorted, pieces, sort
from sparrow.kernels.pallas.singles import step_singles
from sparrow.kernels.pallas.tuning import Tuning
from sparrow.kernels.types import RowGradients, RowStep, StepScalars


def update(
    step: RowStep,
    table: jax.Array,
    slots: tuple[jax.Array, ...],
    grads: RowGradients,
    scalars: StepScalars,
    tuning: Tuning,
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """Applies ``step`` once to every row that ``grads`` touches. With table and slots donated, in place."""
    if grads.ids.shape[0] == 0 or grads.bag_grads.shape[0] == 0:
        return table, slots
    num_rows, programs = table.shape[0], tuning.programs
    entries = sort(grads, num_rows)
    rows = entries.rows
    summands, reader = _entry_gradients(entries, grads)

    count, stride, chunk = rows.shape[0], 1, tuning.chunk
    last = count <= chunk
    work = pieces(rows, num_rows, count if last else chunk, scalars.first_rows)
    state = step_singles(step, (table, *slots), work, rows, summands, reader, scalars, tuning.singles, programs)
    tile = tuning.tile
    while True:
        sums = None if last else struct((-(-count // chunk), step.dim), jnp.float32)
        partials, state = _step_pieces(
            step, state, work, rows, stride, summands, reader, scalars, tile, programs, sums, chunk
        )
        if partials is None:
            new_table, *new_slots = state
            return new_table, tuple(new_slots)
        # The piece that starts at position p left its sum at p // chunk; sums with equal heads belong together.
        count, stride = partials.shape[0], stride * chunk
        chunk, tile = tuning.fold_chunk, tuning.fold
        last = count <= tuning.last_level
        work = pieces(rows, num_rows, count if last else chunk, scalars.first_rows, stride, work.heads)
        summands, reader = (partials,), _side_by_side


def _entry_gradients(entries: Sorted, grads: RowGradients) -> tuple[tuple[jax.Array, ...], Callable[..., Entries]]:
    """What the first level sums, each entry's gain times its bag's gradient: arrays, and how a kernel reads them."""
    through_entries = () if entries.by_bag else (grads.bags,)
    gains = () if grads.gains is None else (grads.gains,)

    def reader(sources_ref: Any, *refs: Any) -> Entries:
        bags_ref = refs[0] if through_entries else None
        gains_ref = refs[len(through_entries)] if gains else None

        def locate(position: jax.Array, mask: jax.Array) -> Place:
            source = gather(sources_ref, position, mask, 0)
            bag = source if bags_ref is None else gather(bags_ref, source, mask, 0)
            # With gains the source is the entry: `Sorted.by_bag` only where there are none, or where entry i is bag i.
            return Place(bag, None if gains_ref is None else gather(gains_ref, source, mask, 0))

        return Entries(refs[-1], locate)

    return (entries.sources, *through_entries, *gains, grads.bag_grads), reader


def _side_by_side(sums_ref: Any) -> Entries:
    """What the other levels sum: the sums that the level before has left."""
    return Entries(sums_ref, lambda position, mask: Place(position))


class _Taken(NamedTuple):
    """The pieces of a tile, as `Pieces` has them; start -1 and stop 0 where there is none."""

    start: jax.Array
    stop: jax.Array
    table: jax.Array | None  # None where there is but one

    def bounds(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Where each piece starts, its length (0: no piece), and whether it is a whole segment."""
        start, stop = (jnp.where(x < 0, ~x, x) for x in (self.start, self.stop))
        return start, stop - start, (self.start >= 0) & (self.stop > 0)


def _step_pieces(
    step: RowStep,
    state: tuple[jax.Array, ...],
    work: Pieces,
    rows: jax.Array,
    stride: int,
    summands: tuple[jax.Array, ...],
    reader: Callable[..., Entries],
    scalars: StepScalars,
    tile: Tile,
    programs: int,
    sums: jax.ShapeDtypeStruct | None,
    chunk: int,
) -> tuple[jax.Array | None, tuple[jax.Array, ...]]:
    """Sums the pieces of several entries, and steps the rows of those that are whole segments.

    Position p of ``summands`` belongs to row ``rows[(p + 1) * stride - 1]``.

    Returns:
      The sums of the pieces of cut segments, where ``sums`` says how many there can be; table and slots.
    """
    numbers = scalar_arrays(step, scalars)
    inputs = (*work, rows, *summands, *numbers, *state)
    outputs = (*(() if sums is None else (sums,)), *(struct(x.shape, x.dtype) for x in state))
    first_state, num_sums = len(inputs) - len(state), len(outputs) - len(state)
    # A program for every tile that could be needed is far too many where rows repeat: some per core go round.
    programs = min(-(-work.starts.shape[0] // tile.rows), programs)

    def kernel(*refs: Any) -> None:
        pieces = Pieces(*refs[: len(work)])
        sums_ref, rows_ref, refs = refs[len(refs) - len(outputs)], refs[len(work)], refs[len(work) + 1 :]
        entries = reader(*refs[: len(summands)])
        state_rows = RowRefs.of(refs[len(summands) :], len(numbers), len(state))
        program, num_pieces = pl.program_id(0), pieces.several[0]

        def take(i: jax.Array) -> _Taken:
            piece = (program + i * programs) * tile.rows + tile.lanes()
            valid = piece < num_pieces
            table = gather(pieces.tables, piece, valid, 0) if state_rows.stacked else None
            return _Taken(gather(pieces.starts, piece, valid, -1), gather(pieces.stops, piece, valid, 0), table)

        def locate(taken: _Taken) -> tuple[jax.Array, list[Place]]:
            start, length, _ = taken.bounds()
            return gather(rows_ref, (start + 1) * stride - 1, length > 0, 0), tile.locate(start, length, entries, 0)

        # Memory answers late: while this round is finished, the next is located, and the one after taken up.
        def one_round(i: jax.Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
            now, (row, places), following = carry
            start, length, whole = now.bounds()
            located, after = locate(following), take(i + 2)
            values = state_rows.load(tile, row, whole)
            grad = tile.ragged_sum(start, length, entries, places)
            values = state_rows.apply(step, tile, row, now.table, whole, values, grad)
            state_rows.store(tile, row, whole, values)
            if sums is not None:
                tile.store(sums_ref, lax.div(start, chunk), ~whole & (length > 0), grad)
            return following, located, after

        tiles = lax.div(num_pieces + (tile.rows - 1), tile.rows)
        rounds = lax.div(tiles - program + (programs - 1), programs)
        now, following = take(jnp.int32(0)), take(jnp.int32(1))
        lax.fori_loop(0, rounds, one_round, (now, locate(now), following))

    aliases = {first_state + i: num_sums + i for i in range(len(state))}
    results = call(kernel, programs, inputs, outputs, tile.warps, aliases)
    return (None if sums is None else results[0]), results[num_sums:]
