"""The map from ids to rows in C++; `sparrow.kernels.ids` has the definition."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.kernels import native
from sparrow.kernels.ids.types import Assigned, IdState, Settings, Undo, assigned, most_gone, table, undo_shapes
from sparrow.kernels.ids.xla import taken_back
from sparrow.kernels.native.library import ASSIGN_IDS, FIND_IDS, INDEX_IDS
from sparrow.kernels.types import stand_in

name = "native"
unavailable = native.unavailable


def find(
    s: Settings, state: IdState, ids: jax.Array, segments: jax.Array, step: jax.Array | int, *, threads: int = 0
) -> jax.Array:
    """(N,) int32: the row of each id; expired ids have none. ``threads=0``: all of XLA's."""
    _check()
    call = jax.ffi.ffi_call(FIND_IDS, stand_in((ids.shape[0],), jnp.int32))
    rows: jax.Array = call(
        *(table(s), ids, segments, jnp.asarray(step, jnp.int32), state.ids, state.last, state.buckets),
        num_rows=np.int64(s.rows),
        threads=np.int64(threads),
    )
    return rows


def assign(
    s: Settings, state: IdState, ids: jax.Array, segments: jax.Array, step: jax.Array | int, *, threads: int = 0
) -> Assigned:
    """Find the rows of ids, and give rows to new ones; with the state donated, in place."""
    _check()
    outputs = [stand_in(array.shape, array.dtype) for array in state]
    outputs.append(stand_in((ids.shape[0],), jnp.int32))
    ends = stand_in((len(s.segments),), jnp.int32)
    for count in (ids.shape[0], most_gone(s, ids.shape[0])):
        outputs += [stand_in((count,), jnp.int32), stand_in((count, 2), jnp.uint32), ends]
    outputs += [stand_in(shape, jnp.int32) for shape in undo_shapes(s, ids.shape[0])]
    before = (table(s), ids, segments, jnp.asarray(step, jnp.int32))
    call = jax.ffi.ffi_call(ASSIGN_IDS, outputs, input_output_aliases={len(before) + i: i for i in range(len(state))})
    results: Any = call(*before, *state, num_rows=np.int64(s.rows), threads=np.int64(threads))
    return assigned(results, state)


def undone(s: Settings, state: IdState, undo: Undo, ids: jax.Array, when: jax.Array) -> IdState:
    """Return the state before a call with ``ids``, where ``when`` is true; ``short`` stays."""
    return taken_back(s, state, undo, ids, when, indexed)


def indexed(s: Settings, state: IdState) -> IdState:
    """Return the state with an index that is built from its ids."""
    _check()
    call = jax.ffi.ffi_call(INDEX_IDS, stand_in(state.buckets.shape, jnp.uint32))
    buckets: Any = call(table(s), state.ids, state.last, num_rows=np.int64(s.rows))
    return state._replace(buckets=buckets)


def _check() -> None:
    if reason := unavailable():
        raise RuntimeError(f"backend 'native' cannot run: {reason}")
