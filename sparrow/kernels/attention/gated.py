"""`gated_attention`: attention between a projection and a normalized, gated result, without passes of their own."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from sparrow.kernels.attention import cuda
from sparrow.kernels.attention.kind import EVERYTHING, Arrays, Gate, Integers, Kind
from sparrow.kernels.attention.operation import chosen
from sparrow.kernels.types import stand_in


def gated_attention(
    x: jax.Array,
    kernel: jax.Array,
    shift: jax.Array,
    norm_scale: jax.Array,
    norm_bias: jax.Array,
    offsets: jax.Array,
    *,
    heads: int,
    epsilon: float,
    max_length: int,
    contexts: jax.Array | None = None,
    candidates: jax.Array | None = None,
    max_distance: int | None = None,
    backend: str = "auto",
    **options: Any,
) -> jax.Array | None:
    """(tokens, 3 width): ``[u, m, norm(m) u]``, where m is the attention of all heads; None where no kernel has it.

    ::

        u, v, q, k = silu(x kernel + shift)          (tokens, width) each
        m          = jagged_attention(q, k, v)       score "silu"; ``options`` are its alpha, scale, sla_k1, sla_k2

    Kernels of CUDA alone: the gradient of what is projected comes from that of the result in three passes, with no
    array between but m's.
    """
    width, tokens, dtype = norm_scale.shape[0], x.shape[0], jnp.result_type(x, kernel)
    reach = EVERYTHING if max_distance is None else max_distance
    kind = Kind("silu", max_length=max_length, max_distance=reach, **options)
    contexts, candidates = (None if x is None else x.astype(jnp.int32) for x in (contexts, candidates))
    integers = offsets.astype(jnp.int32), contexts, candidates
    if 0 in (tokens, offsets.shape[0] - 1, max_length) or cuda.gated_unavailable(kernel.shape[1], dtype, heads, width):
        return None
    like: Any = stand_in((tokens, heads, width // heads), dtype)
    if chosen(backend, kind, Arrays(like, like, like, *integers)) != "cuda":
        return None
    gate = tuple(each.astype(jnp.float32) for each in (shift, norm_scale, norm_bias))
    made: jax.Array = _gated(kind, heads, epsilon, (x.astype(dtype), kernel.astype(dtype)), gate, integers)
    return made


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _gated(kind: Kind, heads: int, epsilon: float, factors: Any, gate: Any, integers: Integers) -> jax.Array:
    return _forward(kind, heads, epsilon, factors, gate, integers)[0]


def _forward(
    kind: Kind, heads: int, epsilon: float, factors: Any, gate: Any, integers: Integers
) -> tuple[jax.Array, Any]:
    y, projected, held = cuda.gated_forward(kind, heads, factors, Gate._make((None, *gate, epsilon)), integers)
    return y, (factors, (projected, *gate), held, y)


def _backward(kind: Kind, heads: int, epsilon: float, held: Any, grads: jax.Array) -> Any:
    factors, gate, arrays, y = held
    found = cuda.gated_backward(kind, Gate._make((*gate, epsilon)), arrays, y, grads)
    _, pullback = jax.vjp(jnp.matmul, *factors)
    return pullback(found.projected), found[1:4], (None, None, None)


_gated.defvjp(_forward, _backward)
