"""The reference backend: plain JAX, for every device. Slow and readable; the fast backends are tested against it."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from sparrow.kernels.rounding import noise
from sparrow.kernels.types import Lookups, RowGradients, RowStep, StepScalars

name = "xla"


def unavailable() -> str | None:
    """Why this backend cannot run here; None: it can."""
    return None


def unsupported(step: RowStep) -> str | None:
    """Why this backend cannot run ``step``; None: it can."""
    return None


def lookup(table: jax.Array, lookups: Lookups) -> jax.Array:
    """(num_bags, dim) float32: each bag's rows, times their gains, summed."""
    ids = _in_range(lookups.ids, table.shape[0])
    rows = table.at[ids].get(mode="fill", fill_value=0).astype(jnp.float32)  # (N, dim)
    if lookups.gains is not None:
        rows = rows * lookups.gains[:, None]
    return rows if lookups.bags is None else _segment_sum(rows, lookups.bags, lookups.num_bags)


def update(
    step: RowStep,
    table: jax.Array,
    slots: tuple[jax.Array, ...],
    grads: RowGradients,
    scalars: StepScalars,
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """Applies ``step`` once to every row that ``grads`` touches. With table and slots donated, in place."""
    num_rows = table.shape[0]
    rows, row_grads = sum_by_row(grads, num_rows)

    tables = jnp.searchsorted(scalars.first_rows, rows, side="right") - 1  # (U,) which table each row belongs to
    hyper = tuple(scalars.hyper.at[tables].get(mode="clip").T)
    bits = None
    if step.stochastic:
        row_in_table = rows - scalars.first_rows.at[tables].get(mode="clip")
        seeds = scalars.seeds.at[tables].get(mode="clip")
        bits = jax.vmap(functools.partial(noise, dim=step.dim))(seeds, row_in_table)

    take = functools.partial(_take, rows)
    new_rows, new_slots = jax.vmap(step)(take(table), row_grads, tuple(map(take, slots)), hyper, bits)
    put = functools.partial(_put, rows)
    return put(table, new_rows), tuple(map(put, slots, new_slots))


def sum_by_row(grads: RowGradients, num_rows: int) -> tuple[jax.Array, jax.Array]:
    """Sums the entries of equal ids.

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
    """(num_segments, dim) sums over sorted ``segments``; the same bits every time."""
    scatter = functools.partial(jax.ops.segment_sum, num_segments=num_segments, indices_are_sorted=True)
    scan = functools.partial(_segment_sum_by_scan, num_segments=num_segments)
    # On GPUs XLA's scatter-add uses atomics, whose order, and so whose bits, change from run to run.
    sums: jax.Array = jax.lax.platform_dependent(values, segments, cuda=scan, rocm=scan, default=scatter)
    return sums


def _segment_sum_by_scan(values: jax.Array, segments: jax.Array, num_segments: int) -> jax.Array:
    def combine(left: tuple[jax.Array, jax.Array], right: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        (left_sum, left_segment), (right_sum, right_segment) = left, right
        same = (left_segment == right_segment)[:, None]
        return jnp.where(same, left_sum + right_sum, right_sum), right_segment

    sums, _ = jax.lax.associative_scan(combine, (values, segments))
    last = jnp.concatenate([segments[1:] != segments[:-1], jnp.ones(min(len(segments), 1), bool)])
    where = jnp.where(last, segments, num_segments)
    return jnp.zeros((num_segments, values.shape[1]), values.dtype).at[where].set(sums, mode="drop")


def _in_range(ids: jax.Array, num_rows: int) -> jax.Array:
    """The ids, with ``num_rows`` for every one that is no row: JAX would count negative ones from the end."""
    return jnp.where((ids >= 0) & (ids < num_rows), ids, num_rows)


def _take(rows: jax.Array, array: jax.Array) -> jax.Array:
    return array.at[rows].get(mode="fill", fill_value=0, indices_are_sorted=True, unique_indices=True)


def _put(rows: jax.Array, array: jax.Array, values: jax.Array) -> jax.Array:
    return array.at[rows].set(values, mode="drop", indices_are_sorted=True, unique_indices=True)
