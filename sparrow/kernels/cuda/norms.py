"""Layer normalization of rows, alone or with a gate, and the gradients: one pass each (``src/norms.cu``)."""

from __future__ import annotations

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
    add(call, machine, 0, source.NORM, x.shape, [*given, call.output(x.shape, x.dtype)], 0, epsilon)
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
    sums = call.output((blocks(machine, x.shape[0], 4), 2, x.shape[1]), jnp.float32)
    add(call, machine, 0, source.NORM_GRADIENT, x.shape, [*given, to, NOTHING, sums], 0, epsilon)
    module = source.norm_module(x.shape[1], x.dtype.name, gated=False)
    made, parts = call.bind(load(machine, [module]), "sequential")
    return made, parts.sum(axis=0)


def blocks(machine: Gpu, rows: int, each: int) -> int:
    """Return the thread blocks of a launch, ``each`` of a multiprocessor: the partial sums of gradients."""
    return max(1, min(each * machine.cores, -(-rows // tuning.NORM_WARPS)))


def add_gated(
    call: Call,
    machine: Gpu,
    program: int,
    kernel: int,
    shape: tuple[int, int],
    itemsize: int,
    y: Argument,
    gate: list[Argument],
    arguments: list[Argument],
    epsilon: float,
) -> None:
    """Launch a kernel over the middle columns of ``y``; ``gate`` are projected, shift, scale, bias."""
    given, each = [y.at(shape[1] * itemsize), *gate, *arguments], 4 if kernel == source.NORM else 2
    add(call, machine, program, kernel, shape, given, 4 * shape[1], epsilon, each)


def add(
    call: Call,
    machine: Gpu,
    program: int,
    kernel: int,
    shape: tuple[int, ...],
    arguments: list[Argument],
    apart: int,
    epsilon: float,
    each: int = 4,
) -> None:
    """Launch a kernel over rows of ``shape``; ``arguments`` are those before rows, apart, epsilon."""
    sizes = [number(shape[0]), number(apart), real(epsilon)]
    call.launch(program, kernel, blocks(machine, shape[0], each), 32 * tuning.NORM_WARPS, [*arguments, *sizes])
