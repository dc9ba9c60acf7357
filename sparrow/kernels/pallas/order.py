"""Entries in the order of their rows, and the pieces that the update works on.

The entries of one row lie together after the sort: a segment. A segment is one piece of work, unless it is long: then
it is cut where the position is a multiple of ``chunk`` and at least ``chunk`` entries of it lie before. So a piece has
fewer than ``2 * chunk`` entries, and a segment of up to ``chunk`` entries is never cut.
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


def pieces(rows: jax.Array, num_rows: int, chunk: int, first_rows: jax.Array, stride: int = 1) -> Pieces:
    """Cuts the sorted ``rows`` (N,), or every ``stride``-th of them, into pieces.

    Args:
      rows: (N,) ascending as unsigned numbers.
      num_rows: other entries than of rows 0 to num_rows - 1 are to be ignored: they are in no piece.
      chunk: see above.
      first_rows: where each table of the stack begins.
      stride: position p is entry ``p * stride``.
    """
    count = -(-rows.shape[0] // stride)
    tile = 64 if interpreted() else max(POSITIONS, power_of_two(-(-count // MOST_COUNTS)))
    programs = -(-count // tile)
    stacked = first_rows.shape[0] > 1
    ends = functools.partial(_ends, count=count, stride=stride, num_rows=num_rows, chunk=chunk, tile=tile)
    one, vector = struct((1,), jnp.int32), struct((count,), jnp.int32)
    per_program = struct((programs,), jnp.int32)

    def count_kernel(rows_ref: Any, counts_ref: Any, single_counts_ref: Any) -> None:
        found = ends(rows_ref)
        counts_ref[pl.program_id(0)] = jnp.sum((found.starts != 0).astype(jnp.int32))
        single_counts_ref[pl.program_id(0)] = jnp.sum(found.single.astype(jnp.int32))

    counts = call(count_kernel, programs, (rows,), (per_program, per_program), warps=WARPS)

    def scan_kernel(counts_ref: Any, single_counts_ref: Any, *refs: Any) -> None:
        at = lax.iota(jnp.int32, power_of_two(programs))
        for ref, before_ref, total_ref in zip((counts_ref, single_counts_ref), refs[:2], refs[2:], strict=True):
            found = gather(ref, at, at < programs, 0)
            through = jnp.cumsum(found)
            scatter(before_ref, at, at < programs, through - found)
            total_ref[0] = jnp.max(through)

    *before, total, total_singles = call(scan_kernel, 1, counts, (per_program, per_program, one, one), warps=WARPS)

    def write_kernel(rows_ref: Any, before_ref: Any, singles_before_ref: Any, first_rows_ref: Any, *refs: Any) -> None:
        starts_ref, stops_ref, tables_ref = refs
        program = pl.program_id(0)
        found = ends(rows_ref)
        starts, single, here = found.starts != 0, found.single, found.position
        through = _count_both(starts, single, tile)
        at = before_ref[program] + through[0] - 1
        single_at = count - singles_before_ref[program] - through[1]
        to = jnp.where(single, single_at, at)
        scatter(starts_ref, to, starts | single, jnp.where(found.starts == CUT, ~here, here))
        scatter(stops_ref, at, found.stops != 0, jnp.where(found.stops == CUT, ~(here + 1), here + 1))
        if stacked:
            scatter(tables_ref, to, starts | single, _table_of(first_rows_ref, found.row, starts | single))

    outputs = (vector, vector, vector if stacked else one)
    starts, stops, tables = call(write_kernel, programs, (rows, *before, first_rows), outputs, warps=WARPS)
    return Pieces(starts, stops, tables, total, total_singles)


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


def _ends(rows_ref: Any, count: int, stride: int, num_rows: int, chunk: int, tile: int) -> _Ends:
    def rows(position: jax.Array, mask: jax.Array, other: int) -> jax.Array:
        return gather(rows_ref, position * stride, mask, other)

    position = pl.program_id(0) * tile + lax.iota(jnp.int32, tile)
    row = rows(position, position < count, num_rows)
    begins = rows(position - 1, (position > 0) & (position < count), -1) != row
    ends = rows(position + 1, position + 1 < count, -1) != row

    def cut(at: jax.Array) -> jax.Array:
        aligned = (lax.rem(at, chunk) == 0) & (at >= chunk) & (at < count)
        return ~begins & (rows(at - chunk, aligned, -1) == row)

    live = (row >= 0) & (row < num_rows)
    several = live & ~(begins & ends)
    starts = jnp.where(begins, WHOLE, jnp.where(cut(position), CUT, 0))
    stops = jnp.where(ends, WHOLE, jnp.where(cut(position + 1), CUT, 0))
    return _Ends(position, row, jnp.where(several, starts, 0), jnp.where(several, stops, 0), live & begins & ends)


def _table_of(first_rows: Any, row: jax.Array, mask: jax.Array) -> jax.Array:
    """Which table of the stack each row belongs to: the last one that begins at or before it."""
    tables = first_rows.shape[0]
    table = jnp.zeros_like(row)
    for bit in reversed(range((tables - 1).bit_length())):
        later = table + (1 << bit)
        begun = mask & (later < tables)
        table = jnp.where(begun & (gather(first_rows, later, begun, 0) <= row), later, table)
    return table
