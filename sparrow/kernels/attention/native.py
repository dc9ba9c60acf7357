"""On CPU cores: tiles of queries and keys in C++ (``native/src/attention.cc``), memory linear in the tokens."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.kernels import native
from sparrow.kernels.attention.kind import Arrays, Gradients, Kind
from sparrow.kernels.native.library import ATTENTION, ATTENTION_BACKWARD
from sparrow.kernels.types import stand_in


def unavailable(kind: Kind, arrays: Arrays) -> str | None:
    """Why this backend cannot run here; None: it can."""
    return native.unavailable()


def forward(kind: Kind, arrays: Arrays) -> tuple[jax.Array, jax.Array]:
    """(tokens, heads, width), and the logarithm of each softmax's sum, (tokens, heads)."""
    inputs = _inputs(arrays)
    v = inputs[2]
    sums = v.shape[:2] if kind.score == "softmax" else (0, 0)
    results = [stand_in(v.shape), stand_in(sums)]
    out, held = jax.ffi.ffi_call(ATTENTION, results, vmap_method="sequential")(*inputs, **_attributes(kind))
    return out.astype(arrays.v.dtype), held


def backward(kind: Kind, arrays: Arrays, out: jax.Array, held: jax.Array, grads: jax.Array) -> Gradients:
    """Return the gradients from that of the result."""
    inputs = _inputs(arrays)
    q, k, v, *_, position, time, _times = inputs
    results = [stand_in(x.shape) for x in (q, k, v, position, time)]
    call = jax.ffi.ffi_call(ATTENTION_BACKWARD, results, vmap_method="sequential")
    more = out.astype(jnp.float32), held, grads.astype(jnp.float32)
    dq, dk, dv, dposition, dtime = call(*inputs, *more, **_attributes(kind))
    return Gradients(
        dq.astype(arrays.q.dtype),
        dk.astype(arrays.k.dtype),
        dv.astype(arrays.v.dtype),
        None if arrays.position is None else dposition,
        None if arrays.time is None else dtime,
    )


def _inputs(arrays: Arrays) -> list[jax.Array]:
    numbers = [jnp.zeros(0) if x is None else x.astype(jnp.float32) for x in (*arrays[:3], *arrays[6:])]
    counts = [jnp.zeros(0, jnp.int32) if x is None else x for x in arrays[3:6]]
    return [*numbers[:3], *counts, *numbers[3:]]


def _attributes(kind: Kind) -> dict[str, Any]:
    return {
        "softmax": np.int64(kind.score == "softmax"),
        "log_time": np.int64(kind.time_bucket_fn == "log"),
        "max_distance": np.int64(kind.max_distance),
        "sla_k1": np.int64(kind.sla_k1),
        "sla_k2": np.int64(kind.sla_k2),
        "alpha": np.float32(kind.alpha),
        "scale": np.float32(kind.scale),
        "time_unit": np.float32(kind.time_unit),
        "threads": np.int64(0),
    }
