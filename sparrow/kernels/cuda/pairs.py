"""Dot products of all pairs of an example's vectors, and their gradient: one kernel each (``src/pairs.cu``)."""

from __future__ import annotations

import jax

from sparrow.kernels.cuda import source, tuning
from sparrow.kernels.cuda.machine import Gpu, load
from sparrow.kernels.cuda.plan import NOTHING, Argument, Call, number

MOST_VECTORS = 32
STEP = 32  # elements that four lanes read at once


def unsupported(count: int, dim: int, dtype: str) -> str | None:
    """Why the kernels cannot take ``count`` vectors of ``dim`` elements of ``dtype``; None: they can."""
    if dtype not in ("bfloat16", "float16"):
        return f"tensor cores take 16-bit numbers, not {dtype}"
    if not 2 <= count <= MOST_VECTORS:
        return f"{count} vectors are not 2 to {MOST_VECTORS}"
    return f"{dim} elements are no multiple of {STEP}" if dim == 0 or dim % STEP else None


def dots(machine: Gpu, first: jax.Array, rest: jax.Array | None) -> jax.Array:
    """(batch, pairs): the dot products, in the order of `sparrow.kernels.pairs`.

    Args:
      machine: the GPU.
      first: (batch, n, dim) vectors.
      rest: (batch, m, dim) the other vectors of the same examples; None: there are none.
    """
    call, inputs, batch, count, module = _call(first, rest)
    out = call.output((batch, count * (count - 1) // 2), first.dtype)
    _launch(call, source.PAIRS, [*inputs, out], batch)
    (result,) = call.bind(load(machine, [module]), vmap_method="sequential")
    return result


def gradient(
    machine: Gpu, first: jax.Array, rest: jax.Array | None, grads: jax.Array
) -> tuple[jax.Array, jax.Array | None]:
    """Return the gradients of ``first`` and ``rest`` from the gradient of `dots`, (batch, pairs)."""
    call, inputs, batch, _, module = _call(first, rest)
    given = call.input(grads)
    outputs = [call.output(first.shape, first.dtype)]
    outputs.append(NOTHING if rest is None else call.output(rest.shape, rest.dtype))
    _launch(call, source.PAIRS_GRADIENT, [*inputs, given, *outputs], batch)
    results = call.bind(load(machine, [module]), vmap_method="sequential")
    return results[0], None if rest is None else results[1]


def _call(first: jax.Array, rest: jax.Array | None) -> tuple[Call, list[Argument], int, int, source.Module]:
    batch, own, dim = first.shape
    count = own + (0 if rest is None else rest.shape[1])
    call = Call()
    module = source.pairs_module(own, count, dim, first.dtype.name, tuning.PairsTuning())
    return call, [call.input(first), call.input(rest)], batch, count, module


def _launch(call: Call, kernel: int, arguments: list[Argument], batch: int) -> None:
    warps = tuning.PairsTuning().warps
    call.launch(0, kernel, -(-batch // warps), 32 * warps, [*arguments, number(batch)])
