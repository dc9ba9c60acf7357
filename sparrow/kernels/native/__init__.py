"""The CPU backend: C++ through XLA's FFI, with the inner loop made from the rule's own equation.

The table and the slots are updated in place where they are donated. A rule that did not come with the package is
compiled on first use and kept in the user's cache folder (``$SPARROW_CACHE_DIR``).
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.kernels.device_kind import platform
from sparrow.kernels.native import library
from sparrow.kernels.native.translate import translate
from sparrow.kernels.translate.values import Inexpressible
from sparrow.kernels.types import EntryGradients, Lookups, RowStep, StepScalars, stand_in
from sparrow.kernels.weights import differentiable

name = "native"


def unavailable() -> str | None:
    """Why this backend cannot run here; None: it can."""
    if (kind := platform()) != "cpu":
        return f"it runs on the CPU, and JAX uses the {kind.upper()} here (JAX_PLATFORMS=cpu makes it use the CPU)"
    found = library.load()
    return found if isinstance(found, str) else None


def move_to_large_pages(address: int, nbytes: int) -> None:
    """Move memory to large pages, where the system has some: it takes about as long as to copy it."""
    found = library.load()
    if not isinstance(found, str):
        found.ffi.sparrow_move_to_huge_pages(ctypes.c_void_p(address), ctypes.c_int64(nbytes))


@functools.lru_cache(maxsize=1024)
def unsupported(step: RowStep) -> str | None:
    """Why this backend cannot run ``step``; None: it can, and its code is loaded."""
    found = library.load()
    if isinstance(found, str):
        return found
    try:
        found.register(translate(step))
    except (Inexpressible, library.CompileError) as error:
        return str(error)
    return None


def lookup(table: jax.Array, lookups: Lookups, dtype: Any = jnp.float32, *, threads: int = 0) -> jax.Array:
    """(num_bags, dim) ``dtype``: each bag's rows, times their gains, summed in float32. ``threads=0``: all of XLA's."""
    if reason := unavailable():
        raise RuntimeError(f"backend 'native' cannot run: {reason}")

    def call(table: jax.Array, lookups: Lookups, dtype: Any) -> tuple[jax.Array, None]:
        return _lookup(table, lookups, threads).astype(dtype), None

    return differentiable(call, table, lookups, dtype)[0]


def _lookup(table: jax.Array, lookups: Lookups, threads: int) -> jax.Array:
    result: jax.Array = jax.ffi.ffi_call(library.LOOKUP, stand_in((lookups.num_bags, table.shape[1])))(
        table,
        lookups.ids,
        _or_empty(lookups.offsets, jnp.int32),
        _or_empty(lookups.gains, jnp.float32),
        threads=np.int64(threads),
    )
    return result


def lookup_and_sort(table: jax.Array, lookups: Lookups, dtype: Any = jnp.float32) -> tuple[jax.Array, Lookups]:
    """`lookup`; the update sorts for itself."""
    return lookup(table, lookups, dtype), lookups


def update(
    step: RowStep,
    table: jax.Array,
    slots: tuple[jax.Array, ...],
    grads: EntryGradients,
    scalars: StepScalars,
    *,
    threads: int = 0,
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """Apply ``step`` once to every row that ``grads`` touches; in place where table and slots are donated."""
    if reason := unsupported(step):
        raise RuntimeError(f"backend 'native' cannot run {step.rule.name}: {reason}")
    logical_rows = scalars.logical_rows if step.stochastic else None  # nothing else reads it
    arrays = (table, *slots)
    inputs = (
        grads.ids,
        _or_empty(grads.bags, jnp.int32),
        _or_empty(grads.gains, jnp.float32),
        grads.bag_grads.astype(jnp.float32),
        scalars.hyper,
        scalars.seeds,
        scalars.first_rows,
        _or_empty(logical_rows, jnp.int32),
    )
    new_table, *new_slots = jax.ffi.ffi_call(
        library.UPDATE,
        [stand_in(array.shape, array.dtype) for array in arrays],
        input_output_aliases={len(inputs) + i: i for i in range(len(arrays))},
    )(
        *inputs,
        *arrays,
        step=np.int64(translate(step).key),
        threads=np.int64(threads),
    )
    return new_table, tuple(new_slots)


def _or_empty(array: jax.Array | None, dtype: Any) -> jax.Array:
    return jnp.zeros(0, dtype) if array is None else array
