"""On NVIDIA GPUs: CUDA kernels (``cuda/src/attention_*.cu``) on tensor cores, bfloat16 in and out, sums in float32.

Heads are padded to 64 or 128 numbers. silu on a Hopper GPU runs by its own instructions (wgmma, TMA), the rest by those
of Ampere. A list of the blocks of all sequences is made on the device, so that no shape depends on lengths.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from sparrow.kernels import cuda
from sparrow.kernels.attention.kind import EVERYTHING, Arrays, Gradients, Kind
from sparrow.kernels.cuda import machine, source, tuning
from sparrow.kernels.cuda.plan import NOTHING, Argument, Call, number, real

HOPPER = "sm_90"
WIDEST = 128
CLEARING = 32  # thread blocks that clear the padding of a result


def unavailable(kind: Kind, arrays: Arrays) -> str | None:
    """Why this backend cannot compute it here; None: it can."""
    if reason := cuda.unavailable():
        return reason
    if any(x.dtype != jnp.bfloat16 for x in arrays[:3]):
        return f"it takes bfloat16, and q is {arrays.q.dtype}"
    if max(arrays.q.shape[2], arrays.v.shape[2]) > WIDEST:
        return f"heads of {max(arrays.q.shape[2], arrays.v.shape[2])} numbers are longer than {WIDEST}"
    if arrays.position is not None or arrays.time is not None:
        return "it has no bias by distance"
    return None


def forward(kind: Kind, arrays: Arrays) -> tuple[jax.Array, tuple[jax.Array, jax.Array] | None]:
    """(tokens, heads, width), and of a softmax: what the 16 bits of the result leave out, the logarithm of each sum.

    The first of these has the shape of the result; the other is to base 2, (tokens, heads).
    """
    plan = _Plan(kind, arrays)
    out, rest, sums = plan.output(), NOTHING, NOTHING
    if kind.score == "softmax":
        rest, sums = plan.output(), plan.call.output(plan.shape[:2], jnp.float32)
    plan.add(tuning.FORWARD, NOTHING, out, rest, sums, NOTHING)
    found, *held = plan.results()
    width = arrays.v.shape[2]
    return found[:, :, :width], (held[0][:, :, :width], held[1]) if held else None


def backward(
    kind: Kind, arrays: Arrays, out: jax.Array, held: tuple[jax.Array, jax.Array] | None, grads: jax.Array
) -> Gradients:
    """Return the gradients from that of the result."""
    plan = _Plan(kind, arrays)
    given = plan.input(grads.astype(jnp.bfloat16))
    sums, delta = NOTHING, NOTHING
    if held is not None:
        rest, logarithms = held
        sums, delta = plan.call.input(logarithms), plan.call.input(deltas(grads, out, rest))
    dq, dk, dv = (plan.output() for _ in range(3))
    plan.add(tuning.QUERIES, given, dq, NOTHING, sums, delta)
    plan.add(tuning.KEYS, given, dk, dv, sums, delta)
    dim, width = arrays.q.shape[2], arrays.v.shape[2]
    of_q, of_k, of_v = plan.results()
    return Gradients(of_q[:, :, :dim], of_k[:, :, :dim], of_v[:, :, :width], None, None)


def deltas(grads: jax.Array, out: jax.Array, rest: jax.Array) -> jax.Array:
    """(tokens, heads) float32: <grads, result> of each head, where the result is the sum of two arrays of 16 bits.

    Of the 16 bits of ``out`` alone it would be rounded by 2^-9: the gradient of a token that sees only itself, which is
    0, would be that rounding.
    """
    return (grads.astype(jnp.float32) * (out.astype(jnp.float32) + rest.astype(jnp.float32))).sum(axis=2)


class _Plan:
    """One call: modes of one attention, each after the list of its blocks."""

    def __init__(self, kind: Kind, arrays: Arrays) -> None:
        self.kind, self.call, self.gpu = kind, Call(), machine.here()
        tokens, heads, dim = arrays.q.shape
        self.shape = tokens, heads, 64 if max(dim, arrays.v.shape[2]) <= 64 else WIDEST
        self.hopper = self.gpu.arch == HOPPER and kind.score == "silu"
        self.q, self.k, self.v = (self.input(x) for x in arrays[:3])
        self.offsets, self.sequences = self.call.input(arrays.offsets), arrays.offsets.shape[0] - 1
        self.contexts, self.candidates = self.call.input(arrays.contexts), self.call.input(arrays.candidates)
        everything = kind.max_distance >= EVERYTHING and arrays.contexts is None and arrays.candidates is None
        self.masks = source.SEMI_LOCAL if kind.is_semi_local else source.CAUSAL if everything else source.PLACES
        self.modules = [source.attention_work_module()]

    def input(self, array: jax.Array) -> Argument:
        """Return an array of heads, each padded to the kernels' dim."""
        missing = self.shape[2] - array.shape[2]
        return self.call.input(jnp.pad(array, ((0, 0), (0, 0), (0, missing))) if missing else array)

    def output(self) -> Argument:
        return self.call.output(self.shape, jnp.bfloat16)

    def add(
        self, mode: int, grads: Argument, first: Argument, second: Argument, sums: Argument, delta: Argument
    ) -> None:
        """Compute ``first`` and ``second`` by the kernel of ``mode``; zeros behind the last sequence."""
        tokens, heads, dim = self.shape
        tuned = tuning.for_attention(dim, mode, self.hopper)
        softmax = self.kind.score == "softmax"
        self.modules.append(source.attention_module(dim, mode, self.masks, softmax, self.hopper))
        program, items = len(self.modules) - 1, tokens // tuned.rows + self.sequences
        work, counter = self.call.scratch(16 * items), self.call.scratch(16)
        sizes = [number(x) for x in (self.sequences, tokens, tuned.rows, int(mode == tuning.KEYS))]
        cleared = [number(heads * dim // 2), first, second]
        self.call.launch(0, source.ATTENTION_WORK, 1 + CLEARING, 1024, [self.offsets, *sizes, work, counter, *cleared])
        masks = [number(min(x, EVERYTHING)) for x in (self.kind.max_distance, self.kind.sla_k1, self.kind.sla_k2)]
        last = [self.contexts, self.candidates, number(heads), real(self.kind.alpha), real(self.kind.scale), *masks]
        grid = items * heads
        if isinstance(tuned, tuning.WgmmaTuning):
            grid = min(grid, self.gpu.cores * tuned.minb)
            kept, streamed = [self.q, grads], [self.k, self.v]
            if mode == tuning.KEYS:
                kept, streamed = [self.k, self.v], [self.q, grads]
            maps = [self._map(x, 64) for x in kept] + [self._map(x, tuned.bn) for x in streamed]
            arguments = [*maps, first, second, work, counter, *last]
        else:
            arguments = [self.q, self.k, self.v, grads, first, second, sums, delta, work, counter, *last]
        shared = tuned.shared(dim, 1 if mode == tuning.FORWARD else 2)
        self.call.launch(program, source.ATTENTION, grid, tuned.threads, arguments, shared)

    def _map(self, array: Argument, rows: int) -> Argument:
        tokens, heads, dim = self.shape
        return self.call.map(self.q if array == NOTHING else array, dim, heads, tokens, rows)

    def results(self) -> list[jax.Array]:
        return self.call.bind(machine.load(self.gpu, self.modules), vmap_method="sequential")
