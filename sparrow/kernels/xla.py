"""The reference backend: plain JAX, for every device. Slow and readable; the fast backends are tested against it."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from sparrow.kernels.rounding import noise
from sparrow.kernels.types import EntryGradients, Lookups, RowStep, StepScalars

name = "xla"


def unavailable() -> str | None:
    """Why this backend cannot run here; None: it can."""
    return None


def unsupported(step: RowStep) -> str | None:
    """Why this backend cannot run ``step``; None: it can."""
    return None


def lookup(table: jax.Array, lookups: Lookups, dtype: Any = jnp.float32) -> jax.Array:
    """(num_bags, dim) ``dtype``: each bag's rows, times their gains, summed in float32."""
    ids = _in_range(lookups.ids, table.shape[0])
    rows = table.at[ids].get(mode="fill", fill_value=0).astype(jnp.float32)  # (N, dim)
    if lookups.gains is not None:
        rows = rows * lookups.gains[:, None]
    pooled = rows if lookups.bags is None else _segment_sum(rows, lookups.bags, lookups.num_bags)
    return pooled.astype(dtype)


def lookup_and_sort(table: jax.Array, lookups: Lookups, dtype: Any = jnp.float32) -> tuple[jax.Array, Lookups]:
    """Return `lookup`, and ``lookups`` with the order of its entries where the backend's update can use one."""
    return lookup(table, lookups, dtype), lookups


def update(
    step: RowStep, table: jax.Array, slots: tuple[jax.Array, ...], grads: EntryGradients, scalars: StepScalars
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """Apply ``step`` once to every row that ``grads`` touches. With table and slots donated, in place."""
    num_rows = table.shape[0]
    rows, row_grads = sum_by_row(grads, num_rows)

    tables = jnp.searchsorted(scalars.first_rows, rows, side="right") - 1  # (U,) which table each row belongs to
    hyper = tuple(scalars.hyper.at[tables].get(mode="clip").T)
    bits = None
    if step.stochastic:
        if scalars.logical_rows is None:
            logical_rows = rows - scalars.first_rows.at[tables].get(mode="clip")
        else:
            logical_rows = scalars.logical_rows.at[rows].get(mode="clip")
        seeds = scalars.seeds.at[tables].get(mode="clip")
        bits = jax.vmap(functools.partial(noise, dim=step.dim))(seeds, logical_rows)

    take = functools.partial(_take, rows)
    new_rows, new_slots = jax.vmap(step)(take(table), row_grads, tuple(map(take, slots)), hyper, bits)
    put = functools.partial(_put, rows)
    return put(table, new_rows), tuple(map(put, slots, new_slots))


def sum_by_row(grads: EntryGradients, num_rows: int) -> tuple[jax.Array, jax.Array]:
    """Sum the entries of equal ids.

    Returns:
      rows: (N,) the distinct ids that are in range, ascending, then distinct numbers past ``num_rows``.
      row_grads: (N, dim) their summed gradients.
    """
    count = grads.ids.shape[0]
    bags = jnp.arange(count, dtype=jnp.int32) if grads.bags is None else grads.bags
    ids = _in_range(grads.ids, num_rows)
    order = jnp.argsort(ids, stable=True)  # stable: the order of a row's sum does not depend on the other rows
    ids, bags = ids[order], bags[order]
    entry_grads = grads.bag_grads.at[bags].get(mode="fill", fill_value=0).astype(jnp.float32)  # (N, dim)
    if grads.gains is not None:
        entry_grads = entry_grads * jnp.asarray(grads.gains)[order][:, None]
    first = jnp.concatenate([jnp.ones(min(count, 1), bool), ids[1:] != ids[:-1]])
    segments = jnp.cumsum(first.astype(jnp.int32)) - 1
    out_of_range = num_rows + jnp.arange(count, dtype=jnp.int32)  # all distinct; an id takes its segment's place
    rows = out_of_range.at[segments].min(ids)
    return rows, _segment_sum(entry_grads, segments, count)


def _segment_sum(values: jax.Array, segments: jax.Array, num_segments: int) -> jax.Array:
    """(num_segments, dim) sums over sorted ``segments``: the same bits every time, and wherever a segment lies."""
    scatter = functools.partial(jax.ops.segment_sum, num_segments=num_segments, indices_are_sorted=True)
    tree = functools.partial(_segment_sum_by_tree, num_segments=num_segments)
    # On GPUs XLA's scatter-add uses atomics, whose order, and so whose bits, change from run to run.
    sums: jax.Array = jax.lax.platform_dependent(values, segments, cuda=tree, rocm=tree, default=scatter)
    return sums


_CHUNK = 4  # a piece of a segment has _CHUNK values, the last one up to 2 * _CHUNK - 1


@functools.partial(jax.jit, static_argnames="num_segments")  # traced once for each size, also where it never runs
def _segment_sum_by_tree(values: jax.Array, segments: jax.Array, num_segments: int) -> jax.Array:
    """`_segment_sum` by a tree over each segment, whose shape follows from the segment's length alone.

    A segment of fewer than ``2 * _CHUNK`` values is summed at once. A longer one is cut into pieces, counted from its
    first value; their sums are the segment's values on the next level. The sum of the piece that begins at position p
    stands at ``p // _CHUNK`` there, so that the pieces of a segment are adjacent and segments never overlap.
    """
    count = values.shape[0]
    first = jnp.concatenate([jnp.ones(min(count, 1), bool), segments[1:] != segments[:-1]])
    last = jnp.concatenate([first[1:], jnp.ones(min(count, 1), bool)])

    def by_segment(where: jax.Array, numbers: jax.Array) -> jax.Array:
        at = jnp.where(where, segments, num_segments)
        return jnp.zeros(num_segments, jnp.int32).at[at].set(numbers, mode="drop")

    def of_positions(count: int, stride: int) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """Each position of a level, its segment, and that segment's first position and length there."""
        position = jnp.arange(count, dtype=jnp.int32)
        segment = segments.at[(position + 1) * stride - 1].get(mode="fill", fill_value=num_segments)
        start, length = (x.at[segment].get(mode="fill", fill_value=0) for x in (starts, lengths))
        return position, segment, start, length

    starts = by_segment(first, jnp.arange(count, dtype=jnp.int32))
    lengths = by_segment(last, jnp.arange(count, dtype=jnp.int32) + 1) - starts
    sums = jnp.zeros((num_segments, values.shape[1]), values.dtype)
    stride = 1
    while count > 0:
        position, segment, start, length = of_positions(count, stride)
        left = length - (position - start)  # values from here to the segment's end
        whole = (position == start) & (left < 2 * _CHUNK)
        size = jnp.where(left < 2 * _CHUNK, left, _CHUNK)  # of the piece, if one begins here
        pieces = values
        for i in range(1, 2 * _CHUNK - 1):
            following = jnp.pad(values[i:], ((0, min(i, count)), (0, 0)))
            pieces = jnp.where((i < size)[:, None], pieces + following, pieces)
        sums = sums.at[jnp.where(whole & (left > 0), segment, num_segments)].set(pieces, mode="drop")
        if count < 2 * _CHUNK:
            break
        count, stride = -(-count // _CHUNK), stride * _CHUNK
        position, _, start, _ = of_positions(count, stride)
        values = pieces.at[start + (position - start // _CHUNK) * _CHUNK].get(mode="fill", fill_value=0)
        starts, lengths = starts // _CHUNK, jnp.where(lengths < 2 * _CHUNK, 0, lengths // _CHUNK)
    return sums


def _in_range(ids: jax.Array, num_rows: int) -> jax.Array:
    """Return the ids, with ``num_rows`` for each that is not a row: JAX would count negative ones from the end."""
    return jnp.where((ids >= 0) & (ids < num_rows), ids, num_rows)


def _take(rows: jax.Array, array: jax.Array) -> jax.Array:
    return array.at[rows].get(mode="fill", fill_value=0, indices_are_sorted=True, unique_indices=True)


def _put(rows: jax.Array, array: jax.Array, values: jax.Array) -> jax.Array:
    return array.at[rows].set(values, mode="drop", indices_are_sorted=True, unique_indices=True)
