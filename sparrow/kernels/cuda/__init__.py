"""The GPU backend: CUDA made from the rule's own equation, compiled at run time by NVRTC, launched through XLA's FFI.

Needs an NVIDIA GPU from Ampere on, its driver, and NVRTC, which ``jax[cuda12]`` and ``jax[cuda13]`` bring; no CUDA
toolkit. Compiled kernels are kept in the user's cache folder (``$SPARROW_CACHE_DIR``).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from sparrow.kernels.cuda import launches, machine, source, tuning
from sparrow.kernels.cuda.emit import row_step
from sparrow.kernels.cuda.plan import NOTHING, Call, number, together
from sparrow.kernels.translate.values import Inexpressible
from sparrow.kernels.types import EntryGradients, Lookups, RowStep, StepScalars
from sparrow.kernels.weights import differentiable

name = "cuda"

LONGEST_ROW = 2048


def unavailable() -> str | None:
    """Why this backend cannot run here; None: it can."""
    found = machine.find()
    return found if isinstance(found, str) else None


@functools.lru_cache(maxsize=1024)
def unsupported(step: RowStep) -> str | None:
    """Why this backend cannot run ``step``; None: it can."""
    if step.dim > LONGEST_ROW:
        return f"rows of {step.dim} elements are longer than {LONGEST_ROW}"
    try:
        row_step(step)
    except Inexpressible as error:
        return str(error)
    return None


def lookup(table: jax.Array, lookups: Lookups, dtype: Any = jnp.float32) -> jax.Array:
    """(num_bags, dim) ``dtype``: each bag's rows, times their gains, summed in float32."""
    return differentiable(functools.partial(_lookup, with_order=False), table, lookups, dtype)[0]


def lookup_and_sort(table: jax.Array, lookups: Lookups, dtype: Any = jnp.float32) -> tuple[jax.Array, Lookups]:
    """Return `lookup`, and ``lookups`` with the order that the update of the same batch needs: both run in parallel."""
    rows, order = differentiable(functools.partial(_lookup, with_order=True), table, lookups, dtype)
    return rows, lookups if order is None else dataclasses.replace(lookups, order=order)


def _lookup(table: jax.Array, lookups: Lookups, dtype: Any, with_order: bool) -> tuple[jax.Array, jax.Array | None]:
    gpu = machine.here()
    (num_rows, dim), num_bags, count = table.shape, lookups.num_bags, lookups.ids.shape[0]
    if num_bags == 0 or num_rows == 0 or dim == 0:
        return jnp.zeros((num_bags, dim), dtype), None
    out_dtype, table_dtype = jnp.dtype(dtype).name, table.dtype.name
    bagged = lookups.offsets is not None
    tuned, sorting = tuning.for_lookup(dim, table_dtype, bagged), tuning.for_sort(count, gpu.cores)
    modules = [source.lookup_module(dim, table_dtype, out_dtype, bagged, tuned)]
    call = Call()
    ids = call.input(_row_numbers(lookups.ids, num_rows))
    offsets = [call.input(lookups.offsets)] if bagged else []
    arrays = [call.input(table), number(num_rows), ids, *offsets, call.input(lookups.gains)]
    out = call.output((num_bags, dim), dtype)
    with_order = with_order and 0 < count <= launches.MOST_ENTRIES
    if with_order:
        modules.append(source.sort_module(launches.sort_passes(num_rows, sorting), sorting))
        sources = call.input(lookups.bags) if lookups.gains is None else NOTHING
        entries = call.output((2 * count,), launches.ENTRY)
        call.fork()
        launches.add_sort(call, 1, sorting, gpu.cores, count, num_rows, ids, sources, entries)
        call.main()
    groups = 32 // tuning.lanes(dim // tuned.slices, tuned.vector, tuned.lanes)
    warps = -(-num_bags // (groups * tuned.bags if bagged else 32)) * tuned.slices
    blocks = -(-warps // tuned.warps)
    call.launch(0, source.LOOKUP, blocks, 32 * tuned.warps, [*arrays, out, number(num_bags)])
    if with_order:
        call.join()
    rows, *order = call.bind(machine.load(gpu, modules))
    return rows, order[0] if order else None


def update(
    step: RowStep, table: jax.Array, slots: tuple[jax.Array, ...], grads: EntryGradients, scalars: StepScalars
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """Apply ``step`` once to every row that ``grads`` touches; in place where table and slots are donated."""
    if reason := unsupported(step):
        raise RuntimeError(f"backend 'cuda' cannot run {step.rule.name}: {reason}")
    gpu = machine.here()
    (num_rows, dim), count, num_tables = table.shape, grads.ids.shape[0], scalars.first_rows.shape[0]
    if count == 0 or num_rows == 0 or dim == 0:
        return table, slots
    if count > launches.MOST_ENTRIES:
        raise ValueError(f"a step has {count} ids in one stack; backend 'cuda' takes at most {launches.MOST_ENTRIES}")
    grad_dtype = grads.bag_grads.dtype.name
    if grad_dtype not in source.TYPES:
        grads, grad_dtype = grads._replace(bag_grads=grads.bag_grads.astype(jnp.float32)), "float32"
    has_gains, stacked = grads.gains is not None, num_tables > 1
    logical = scalars.logical_rows if step.stochastic else None
    tuned, sorting = tuning.for_update(step, grad_dtype), tuning.for_sort(count, gpu.cores)
    modules = [source.update_module(step, grad_dtype, has_gains, stacked, logical is not None, tuned)]

    call = Call()
    bags, gains = call.input(grads.bags), call.input(grads.gains)
    bag_grads = call.input(grads.bag_grads)
    hyper, seeds, first_rows, logical_rows = (
        call.input(x) for x in (scalars.hyper, scalars.seeds, scalars.first_rows, logical)
    )
    entries = call.input(grads.order)
    ids = NOTHING if grads.order is not None else call.input(_row_numbers(grads.ids, num_rows))
    state = [call.in_place(array) for array in (table, *slots)]
    if grads.order is None:
        modules.append(source.sort_module(launches.sort_passes(num_rows, sorting), sorting))
        entries = call.scratch(8 * count)
        sources = NOTHING if has_gains else bags
        launches.add_sort(call, 1, sorting, gpu.cores, count, num_rows, ids, sources, entries)
    sums = launches.partial_sums(count)
    partials, tickets = NOTHING, NOTHING
    if sums:
        partials, tickets = call.scratch(4 * dim * sums), call.scratch(4 * sums * tuned.slices)
        call.zero(tickets, 4 * sums * tuned.slices)
    arguments = [
        *(entries, number(count), number(num_rows), bags, gains, bag_grads, number(grads.bag_grads.shape[0])),
        *(hyper, seeds, first_rows, number(num_tables), logical_rows, partials, tickets, number(sums), state[0]),
        *together(state[1:]),
    ]
    blocks = -(-count // (launches.CHUNK * tuned.task * tuned.warps)) * tuned.slices
    call.launch(0, source.UPDATE, blocks, 32 * tuned.warps, arguments)
    new_table, *new_slots = call.bind(machine.load(gpu, modules))
    return new_table, tuple(new_slots)


def _row_numbers(ids: jax.Array, num_rows: int) -> jax.Array:
    """Return the ids in 32 bits; ids that are not rows become ``num_rows``."""
    if ids.dtype in (jnp.int32, jnp.uint32):
        return ids
    return jnp.where((ids < 0) | (ids >= num_rows), num_rows, ids).astype(jnp.int32)
