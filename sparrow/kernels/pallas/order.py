"""Entries in the order of their rows, and the pieces that the update works on.

The entries of one row lie together after the sort: a segment. A segment is one piece of work, unless it is long: then
it is cut ``chunk``, ``2 * chunk``, ... entries after its start, as long as at least ``chunk`` entries follow the cut.
A piece has ``chunk`` entries, the last one fewer than ``2 * chunk``; a segment of fewer than that is never cut. So the
order of a row's sum does not depend on where its segment lies.

The sum of a piece that starts at position p stands at ``p // chunk`` on the next level. There the pieces of a segment
lie side by side, and no two pieces share a place, because a cut segment has ``chunk`` entries for each of its pieces.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from sparrow.kernels.pallas.blocks import call, gather, interpreted, power_of_two, scatter, struct
from sparrow.kernels.types import RowGradients

MOST_COUNTS = 8192  # how many programs' counts one program adds up
POSITIONS, WARPS = 1024, 8  # a program's share of the entries, and its warps


class Sorted(NamedTuple):
    """The entries of a step in the order of their rows; entries of one row keep their order."""

    rows: jax.Array  # (N,) int32, ascending as unsigned numbers: entries to ignore come last
    sources: jax.Array  # (N,) int32, the entry, or its bag where nothing else is wanted of it
    by_bag: bool  # whether sources are bags


class Pieces(NamedTuple):
    """The work of an update. Pieces of several entries fill the arrays from the front, pieces of one from the back."""

    starts: jax.Array  # (N,) int32: where a piece starts; ~position where its segment was cut there
    stops: jax.Array  # (N,) int32: past its end; ~position where its segment was cut there; not given for one entry
    tables: jax.Array  # (N,) int32: the row's table in the stack; (1,) and of no meaning where there is but one
    several: jax.Array  # (1,) int32: how many pieces of several entries
    singles: jax.Array  # (1,) int32: how many of one
    heads: jax.Array  # (N / chunk,) int32: by place on the next level, the place where its segment begins there


def sort(grads: RowGradients, num_rows: int) -> Sorted:
    """Sorts the entries by row, stably, so that a row's sum has one order whatever the other rows."""
    ids = grads.ids
    if ids.dtype != jnp.int32:
        ids = jnp.where((ids < 0) | (ids >= num_rows), num_rows, ids).astype(jnp.int32)
    by_bag = grads.bags is None or grads.gains is None
    sources = lax.iota(jnp.int32, ids.shape[0]) if grads.bags is None or not by_bag else grads.bags.astype(jnp.int32)
    # Without a sign, what is below the table sorts behind it, with what is above.
    keys, sources = lax.sort((lax.bitcast_convert_type(ids, jnp.uint32), sources), num_keys=1, is_stable=True)
    return Sorted(lax.bitcast_convert_type(keys, jnp.int32), sources, by_bag)


def pieces(
    rows: jax.Array,
    num_rows: int,
    chunk: int,
    first_rows: jax.Array,
    stride: int = 1,
    heads: jax.Array | None = None,
) -> Pieces:
    """Cuts the sorted ``rows`` (N,), or on a later level the places that ``heads`` gives, into pieces.

    Args:
      rows: (N,) ascending as unsigned numbers.
      num_rows: other entries than of rows 0 to num_rows - 1 are to be ignored: they are in no piece.
      chunk: see above.
      first_rows: where each table of the stack begins.
      stride: place p of this level stands for entries ``p * stride`` to ``(p + 1) * stride``; the last of them is of
        the row of p, where p holds a sum.
      heads: from the level before; None on the first one, where segments are entries of equal rows.
    """
    count = -(-rows.shape[0] // stride)
    tile = 64 if interpreted() else max(POSITIONS, power_of_two(-(-count // MOST_COUNTS)))
    programs = -(-count // tile)
    stacked = first_rows.shape[0] > 1
    ends = functools.partial(_ends, count=count, stride=stride, num_rows=num_rows, chunk=chunk, tile=tile)
    one, vector = struct((1,), jnp.int32), struct((count,), jnp.int32)
    per_program = struct((programs,), jnp.int32)
    keys = (rows,) if heads is None else (rows, heads)

    def count_kernel(*refs: Any) -> None:
        found = ends(*refs[: len(keys)])
        counts_ref, single_counts_ref = refs[len(keys) :]
        counts_ref[pl.program_id(0)] = jnp.sum((found.starts != 0).astype(jnp.int32))
        single_counts_ref[pl.program_id(0)] = jnp.sum(found.single.astype(jnp.int32))

    counts = call(count_kernel, programs, keys, (per_program, per_program), warps=WARPS)

    def scan_kernel(counts_ref: Any, single_counts_ref: Any, *refs: Any) -> None:
        at = lax.iota(jnp.int32, power_of_two(programs))
        for ref, before_ref, total_ref in zip((counts_ref, single_counts_ref), refs[:2], refs[2:], strict=True):
            found = gather(ref, at, at < programs, 0)
            through = jnp.cumsum(found)
            scatter(before_ref, at, at < programs, through - found)
            total_ref[0] = jnp.max(through)

    *before, total, total_singles = call(scan_kernel, 1, counts, (per_program, per_program, one, one), warps=WARPS)

    def write_kernel(*refs: Any) -> None:
        before_ref, singles_before_ref, first_rows_ref, starts_ref, stops_ref, tables_ref, heads_ref = refs[len(keys) :]
        program = pl.program_id(0)
        found = ends(*refs[: len(keys)])
        starts, single, here = found.starts != 0, found.single, found.position
        through = _count_both(starts, single, tile)
        at = before_ref[program] + through[0] - 1
        single_at = count - singles_before_ref[program] - through[1]
        to = jnp.where(single, single_at, at)
        scatter(starts_ref, to, starts | single, jnp.where(found.starts == CUT, ~here, here))
        scatter(stops_ref, at, found.stops != 0, jnp.where(found.stops == CUT, ~(here + 1), here + 1))
        if stacked:
            scatter(tables_ref, to, starts | single, _table_of(first_rows_ref, found.row, starts | single))
        # A place where no piece leaves its sum is a segment of its own, and of one place: nothing is folded there.
        place = lax.div(here, chunk)
        ends_place = (here < count) & ((lax.rem(here, chunk) == chunk - 1) | (here == count - 1))
        scatter(heads_ref, place, ends_place, jnp.where(found.head < 0, place, found.head))

    outputs = (vector, vector, vector if stacked else one, struct((-(-count // chunk),), jnp.int32))
    starts, stops, tables, heads = call(write_kernel, programs, (*keys, *before, first_rows), outputs, warps=WARPS)
    return Pieces(starts, stops, tables, total, total_singles, heads)


def _count_both(a: jax.Array, b: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """How many of ``a`` and of ``b`` are true up to each position."""
    if size < 1 << 15:  # one scan does for both: it is what the kernel spends its time on
        both = jnp.cumsum(a.astype(jnp.int32) + (b.astype(jnp.int32) << 16))
        return both & 0xFFFF, both >> 16
    return jnp.cumsum(a.astype(jnp.int32)), jnp.cumsum(b.astype(jnp.int32))


WHOLE, CUT = 1, 2  # how a piece can start or stop


class _Ends(NamedTuple):
    """What lies at each position of a program's tile."""

    position: jax.Array
    row: jax.Array
    starts: jax.Array  # whether and how a piece of several entries starts here: 0, WHOLE, CUT
    stops: jax.Array  # whether and how one stops behind it
    single: jax.Array  # whether this is a segment of one entry
    head: jax.Array  # -1, unless a later piece of its segment left its sum for this place: segment's start // chunk


def _ends(
    rows_ref: Any, heads_ref: Any = None, *, count: int, stride: int, num_rows: int, chunk: int, tile: int
) -> _Ends:
    keys_ref = rows_ref if heads_ref is None else heads_ref  # equal within a segment, ascending, and nowhere else equal

    def keys(position: jax.Array, mask: jax.Array, other: int) -> jax.Array:
        return gather(keys_ref, position, mask, other)

    position = pl.program_id(0) * tile + lax.iota(jnp.int32, tile)
    inside = position < count
    entry = position * stride + (stride - 1)
    row = gather(rows_ref, entry, inside & (entry < rows_ref.shape[0]), num_rows)
    key = row if heads_ref is None else keys(position, inside, -1)
    begins = keys(position - 1, (position > 0) & inside, -1) != key
    ends = keys(position + 1, position + 1 < count, -1) != key
    live = (row >= 0) & (row < num_rows)

    # Only where the segment has begun chunk - 1 or more positions before can a piece end here or the next one start.
    earlier = position - (chunk - 1)
    far = live & (earlier >= 0) & (keys(earlier, live & (earlier >= 0), -1) == key)
    start = _first_equal(keys_ref, key, earlier, far) if heads_ref is None else key

    def cut(at: jax.Array) -> jax.Array:
        """Whether a piece starts at ``at``, and another one of the segment stops there."""
        mine = far & (at - start >= chunk) & (lax.rem(at - start, chunk) == 0) & (at <= count - chunk)
        return mine & (keys(at + (chunk - 1), mine, -1) == key)

    several = live & ~(begins & ends)
    starts = jnp.where(begins, WHOLE, jnp.where(cut(position), CUT, 0))
    stops = jnp.where(ends, WHOLE, jnp.where(cut(position + 1), CUT, 0))

    head = lax.div(start, chunk)
    place = lax.div(position, chunk)
    piece_end = start + (place - head + 1) * chunk  # of the piece that starts between place * chunk and here
    later = far & (place > head) & (piece_end <= count)
    later = later & (keys(piece_end - 1, later, -1) == key)
    return _Ends(
        position,
        row,
        jnp.where(several, starts, 0),
        jnp.where(several, stops, 0),
        live & begins & ends,
        jnp.where(later, head, -1),
    )


def _first_equal(keys_ref: Any, key: jax.Array, at: jax.Array, mask: jax.Array) -> jax.Array:
    """Where ``mask``, the first position that holds ``key``, which stands at ``at``, by halving; ascending keys."""

    def halve(_: jax.Array, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds  # the position is from low to high, and high holds the key
        middle = low + lax.div(high - low, 2)
        equal = gather(keys_ref, middle, mask, 0) == key
        return jnp.where(equal, low, middle + 1), jnp.where(equal, middle, high)

    rounds = jnp.max(jnp.where(mask, jnp.int32(keys_ref.shape[0].bit_length()), 0))  # none where nothing is sought
    bounds: tuple[jax.Array, jax.Array] = lax.fori_loop(jnp.int32(0), rounds, halve, (jnp.zeros_like(at), at))
    return bounds[1]


def _table_of(first_rows: Any, row: jax.Array, mask: jax.Array) -> jax.Array:
    """Which table of the stack each row belongs to: the last one that begins at or before it."""
    tables = first_rows.shape[0]
    table = jnp.zeros_like(row)
    for bit in reversed(range((tables - 1).bit_length())):
        later = table + (1 << bit)
        begun = mask & (later < tables)
        table = jnp.where(begun & (gather(first_rows, later, begun, 0) <= row), later, table)
    return table
