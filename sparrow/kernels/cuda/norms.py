"""Layer normalization of rows, alone or with a gate, and the gradients: one pass each (``src/norms.cu``)."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from sparrow.kernels.cuda import source, tuning
from sparrow.kernels.cuda.machine import Gpu, load
from sparrow.kernels.cuda.plan import NOTHING, Argument, Call, number, real

WIDEST = 1024


def unsupported(dim: int, dtype: str) -> str | None:
    """Why the kernels cannot take rows of ``dim`` numbers of ``dtype``; None: they can."""
    if dtype not in source.TYPES:
        return f"they take {', '.join(source.TYPES)}, not {dtype}"
    return f"{dim} numbers are no multiple of 32 up to {WIDEST}" if dim % 32 or not 0 < dim <= WIDEST else None


def norm(
    machine: Gpu, x: jax.Array, scale: jax.Array, bias: jax.Array, epsilon: float, added: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Return ``x + added``, (rows, dim), and its rows normalized; scale and bias are float32."""
    call = Call()
    given = [call.input(each) for each in (x, None, None, scale, bias, added)]
    given.append(NOTHING if added is None else call.output(x.shape, x.dtype))
    given += [call.output(x.shape, x.dtype), number(x.shape[0]), number(0), real(epsilon)]
    launch(call, machine, 0, source.NORM, x.shape, False, given)
    *total, made = call.bind(load(machine, [source.norm_module(x.shape[1], x.dtype.name, gated=False)]), "sequential")
    return (total[0] if total else x), made


def gradient(
    machine: Gpu,
    x: jax.Array,
    scale: jax.Array,
    bias: jax.Array,
    epsilon: float,
    grads: jax.Array,
    kept: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
    """Return the gradients of ``x``, to which ``kept`` is added, and of scale and bias, (2, dim) float32."""
    call = Call()
    given = [call.input(x), NOTHING, NOTHING, call.input(scale), NOTHING, call.input(grads), call.input(kept)]
    to = call.output(x.shape, x.dtype)
    sums = call.output((blocks(machine, x.shape, source.NORM_GRADIENT, False), 2, x.shape[1]), jnp.float32)
    given += [to, NOTHING, sums, number(x.shape[0]), number(0), real(epsilon), NOTHING, number(0)]
    launch(call, machine, 0, source.NORM_GRADIENT, x.shape, False, given)
    module = source.norm_module(x.shape[1], x.dtype.name, gated=False)
    made, parts = call.bind(load(machine, [module]), "sequential")
    return made, parts.sum(axis=0)


def blocks(machine: Gpu, shape: tuple[int, ...], kernel: int, gated: bool) -> int:
    """Return the thread blocks of a launch over rows of ``shape``; of gradients, these are the partial sums."""
    return tuning.for_norm(shape[1], gated).blocks(shape[0], machine.cores, kernel == source.NORM_GRADIENT)


def launch(
    call: Call,
    machine: Gpu,
    program: int,
    kernel: int,
    shape: tuple[int, ...],
    gated: bool,
    arguments: Sequence[Argument],
) -> None:
    """Launch a kernel over rows of ``shape``."""
    threads = 32 * tuning.for_norm(shape[1], gated).warps
    call.launch(program, kernel, blocks(machine, shape, kernel, gated), threads, arguments)
