"""On NVIDIA GPUs: CUDA kernels (``cuda/src/attention_*.cu``).

bfloat16 runs on tensor cores, with sums in float32: silu without a bias on a Hopper GPU by its own instructions (wgmma,
TMA), the rest by those of Ampere. Other dtypes are computed in float32 by plain products. Heads are padded to 64 or 128
numbers. A list of the blocks of all sequences is made on the device, so that no shape depends on lengths.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sparrow.kernels import cuda
from sparrow.kernels.attention.kind import EVERYTHING, Arrays, Gate, Gradients, Integers, Kind
from sparrow.kernels.cuda import machine, norms, source, tuning
from sparrow.kernels.cuda.plan import NOTHING, Argument, Call, number, real
from sparrow.kernels.types import stand_in

HOPPER = "sm_90"
WIDEST = 128


def unavailable(kind: Kind, arrays: Arrays) -> str | None:
    """Why this backend cannot compute it here; None: it can."""
    if reason := cuda.unavailable():
        return reason
    if any(x.dtype.itemsize > 4 for x in arrays[:3]):
        return f"it takes float32 at most, and q is {arrays.q.dtype}"
    if max(arrays.q.shape[2], arrays.v.shape[2]) > WIDEST:
        return f"heads of {max(arrays.q.shape[2], arrays.v.shape[2])} numbers are longer than {WIDEST}"
    return None


Held = tuple[list[jax.Array], jax.Array] | None
"""Values of a softmax: arrays whose sum is the result, and the logarithm of each sum of powers, (tokens, heads)."""


def forward(kind: Kind, arrays: Arrays) -> tuple[jax.Array, Held]:
    """(tokens, heads, width), and what `backward` needs. The 16 bits of a result leave a rest, which is held, too."""
    plan = _Plan(kind, arrays)
    out, rest, sums = plan.output(), NOTHING, NOTHING
    if kind.score == "softmax":
        sums = plan.call.output(plan.shape[:2], jnp.float32)
        rest = NOTHING if plan.is_float else plan.output()
    plan.add(tuning.FORWARD, NOTHING, out, rest, sums, NOTHING)
    found, *held = plan.results()
    width = arrays.v.shape[2]
    parts = [x[:, :, :width] for x in (found, *held[1:])]
    return parts[0].astype(arrays.v.dtype), (parts, held[0]) if held else None


def backward(kind: Kind, arrays: Arrays, out: jax.Array, held: Held, grads: jax.Array) -> Gradients:
    """Return the gradients from that of the result."""
    plan = _Plan(kind, arrays)
    given = plan.input(grads)
    sums, delta = NOTHING, NOTHING
    if held is not None:
        parts, logarithms = held
        sums, delta = plan.call.input(logarithms), plan.call.input(deltas(grads, *parts))
    dq, dk, dv = (plan.output() for _ in range(3))
    buckets = plan.buckets
    if is_biased := any(buckets):
        bound = _bias_bound(kind, arrays, grads)
        factor = jnp.ldexp(1.0, jnp.clip(61 - jnp.frexp(bound)[1], -120, 120))
        plan.factor, plan.of_bias = plan.call.input(factor), plan.call.output((sum(buckets), 2), jnp.uint32)
        plan.call.zero(plan.of_bias, 8 * sum(buckets))
    plan.add(tuning.QUERIES, given, dq, NOTHING, sums, delta)
    plan.add(tuning.KEYS, given, dk, dv, sums, delta)
    of_q, of_k, of_v, *more = plan.results()
    made = zip((of_q, of_k, of_v), arrays[:3], strict=True)
    of_q, of_k, of_v = (x[:, :, : like.shape[2]].astype(like.dtype) for x, like in made)
    of_position = of_time = None
    if is_biased:
        low, high = more[0][:, 0], jax.lax.bitcast_convert_type(more[0][:, 1], jnp.int32)
        of_bias = (high.astype(jnp.float32) * 2.0**32 + low.astype(jnp.float32)) / factor + 0 * bound  # NaN stays
        of_position = None if arrays.position is None else of_bias[: buckets[0]]
        of_time = None if arrays.time is None else of_bias[buckets[0] :]
    return Gradients(of_q, of_k, of_v, of_position, of_time)


def gated_unavailable(columns: int, dtype: Any, heads: int, width: int) -> str | None:
    """Why `gated_forward` and `gated_backward` cannot take ``columns`` of ``dtype``; None: they can."""
    dim = width // heads
    if reason := cuda.unavailable() or norms.unsupported(width, dtype.name):
        return reason
    if columns != 4 * width or dim not in (64, WIDEST) or dtype not in (jnp.float32, jnp.bfloat16):
        return f"it takes heads of 64 or {WIDEST} numbers in float32 or bfloat16"
    return None


def can_project(dim: int, width: int) -> bool:
    """Whether one kernel projects rows of ``dim`` numbers: it has all of them, and 256 columns, in shared memory."""
    return dim in (64, 128, 192, 256) and width % 256 == 0


def gated_forward(
    kind: Kind, heads: int, factors: tuple[jax.Array, jax.Array], gate: Gate, integers: Integers
) -> tuple[jax.Array, jax.Array, Arrays]:
    """Return ``[u, mixed, norm(mixed) u]``, (tokens, 3 width), and what `gated_backward` needs.

    ``factors``: x and the kernel, whose product is ``projected`` of the gate.
    """
    (x, kernel), width = factors, gate.scale.shape[0]
    like: Any = stand_in((x.shape[0], heads, width // heads), x.dtype)
    plan = _Plan(kind, Arrays(like, like, like, *integers), gate)
    y, p = plan.call.output((x.shape[0], 3 * width), plan.dtype), NOTHING
    if is_narrow := plan.hopper and can_project(x.shape[1], width):
        projected: Any = plan.call.output((x.shape[0], 4 * width), plan.dtype)
        plan.project(x, kernel, projected, y)
    else:
        projected = x @ kernel
        p = plan.call.input(projected)
        plan.over_rows(source.ACTIVATE, [p, plan.gate[0], plan.v, plan.q, plan.k])
    plan.add(tuning.FORWARD, NOTHING, y, NOTHING, NOTHING, NOTHING)
    plan.add_norm(source.NORM, y, p, [NOTHING, NOTHING, y])
    q, k, v, made, *more = plan.results()
    return made, more[0] if is_narrow else projected, Arrays(q, k, v, *integers)


def gated_backward(kind: Kind, gate: Gate, arrays: Arrays, y: jax.Array, grads: jax.Array) -> Gate:
    """Return the gradients of the gate's arrays."""
    plan = _Plan(kind, arrays, gate)
    width, tokens = gate.scale.shape[0], plan.shape[0]
    to, given = plan.call.output((tokens, 4 * width), plan.dtype), plan.output()
    plan.projected = plan.call.input(gate.projected)
    blocks = norms.blocks(plan.gpu, (tokens, width), source.NORM_GRADIENT, gated=True)
    sums, zeros = plan.call.output((blocks, 3, width), jnp.float32), [NOTHING, number(0)]
    if plan.hopper:
        slots = tokens // 64 + plan.sequences + 1
        plan.totals = plan.call.output((slots + 1, 4 * width), jnp.float32)
        plan.zeroed = [plan.totals.at(16 * width * slots + 16 * at) for at in range(2)]  # in the last row
        zeros = [plan.totals, number((slots + 1) * width)]
    grads_and_results = [plan.call.input(grads), NOTHING, given, to, sums]
    plan.add_norm(source.NORM_GRADIENT, plan.call.input(y), plan.projected, grads_and_results, *zeros)
    is_beside = plan.shape[2] == 64  # one begins while the last blocks of the other end
    if is_beside:
        plan.call.fork()
    plan.add(tuning.QUERIES, given, to, NOTHING, NOTHING, NOTHING)
    if is_beside:
        plan.call.main()
    plan.add(tuning.KEYS, given, to, to, NOTHING, NOTHING)
    if is_beside:
        plan.call.join()
    made, _, parts, *totals = plan.results()
    of_scale, of_bias, of_shift = parts.sum(axis=0)
    others = totals[0][:-1, width:] if totals else made[:, width:].astype(jnp.float32)
    return Gate(made, jnp.concatenate([of_shift, others.sum(axis=0)]), of_scale, of_bias, gate.epsilon)


def _bias_bound(kind: Kind, arrays: Arrays, grads: jax.Array) -> jax.Array:
    """Return a number above the sum of |gradient| of all scores, by which the kernels scale them to integers."""
    there = (jnp.arange(grads.shape[0]) < arrays.offsets[-1])[:, None, None]
    held = (jnp.where(there, x.astype(jnp.float32), 0) for x in (grads, arrays.v))
    of_grads, of_v = (jnp.sqrt((x * x).sum(axis=2)) for x in held)
    return 2 * grads.shape[0] * abs(kind.scale) * of_grads.sum() * of_v.max()


def deltas(grads: jax.Array, *parts: jax.Array) -> jax.Array:
    """(tokens, heads) float32: <grads, result> of each head, where the result is the sum of ``parts``.

    Of the 16 bits of the result alone it would be rounded by 2^-9: the gradient of a token that sees only itself, which
    is 0, would be that rounding.
    """
    return (grads.astype(jnp.float32) * sum(part.astype(jnp.float32) for part in parts)).sum(axis=2)


class _Plan:
    """One call: modes of one attention, each after the list of its blocks.

    Attributes:
      factor: the factor by which gradients of the bias become integers.
      of_bias: the sums of these, (buckets, 2).
      gate: shift, scale and bias of a `Gate`.
      projected: that of the gate, where gradients are those of it.
      totals: sums of these over the rows of a warpgroup, (slots + 1, 4 width).
      zeroed: counters that are 0 when the kernels that take them start.
    """

    def __init__(self, kind: Kind, arrays: Arrays, gate: Gate | None = None) -> None:
        self.kind, self.arrays, self.call, self.gpu = kind, arrays, Call(), machine.here()
        tokens, heads, dim = arrays.q.shape
        self.shape = tokens, heads, 64 if max(dim, arrays.v.shape[2]) <= 64 else WIDEST
        self.is_float = any(x.dtype != jnp.bfloat16 for x in arrays[:3])
        position, time = (0 if x is None else len(x) for x in (arrays.position, arrays.time))
        self.buckets = position, time
        self.hopper = self.gpu.arch == HOPPER and kind.score == "silu" and not self.is_float and not any(self.buckets)
        is_given = isinstance(arrays.q, jax.Array)  # else they are made of what is projected
        self.q, self.k, self.v = (self.input(x) if is_given else self.output() for x in arrays[:3])
        self.offsets, self.sequences = self.call.input(arrays.offsets), arrays.offsets.shape[0] - 1
        self.contexts, self.candidates = self.call.input(arrays.contexts), self.call.input(arrays.candidates)
        everything = kind.max_distance >= EVERYTHING and arrays.contexts is None and arrays.candidates is None
        self.masks = source.SEMI_LOCAL if kind.is_semi_local else source.CAUSAL if everything else source.PLACES
        self.modules: list[source.Module] = []
        self.bias = [self.call.input(x) for x in arrays[6:]]
        self.factor = self.of_bias = self.totals = self.projected = NOTHING
        self.gate = [] if gate is None else [self.call.input(x) for x in gate[1:4]]
        self.zeroed: list[Argument] = []
        self.epsilon = 0.0 if gate is None else gate.epsilon

    @property
    def dtype(self) -> Any:
        return jnp.float32 if self.is_float else jnp.bfloat16

    def input(self, array: jax.Array) -> Argument:
        """Return an array of heads, each padded to the kernels' dim."""
        missing = self.shape[2] - array.shape[2]
        array = array.astype(self.dtype)
        return self.call.input(jnp.pad(array, ((0, 0), (0, 0), (0, missing))) if missing else array)

    def output(self) -> Argument:
        return self.call.output(self.shape, self.dtype)

    def add(
        self, mode: int, grads: Argument, first: Argument, second: Argument, sums: Argument, delta: Argument
    ) -> None:
        """Compute ``first`` and ``second`` by the kernel of ``mode``; zeros behind the last sequence."""
        tokens, heads, dim = self.shape
        softmax, inner = self.kind.score == "softmax", bool(self.gate)
        tuned: tuning.MmaTuning | tuning.WgmmaTuning | tuning.FloatTuning
        if self.is_float:
            tuned = tuning.for_float_attention(dim)
            module = source.attention_float_module(dim, mode, self.masks, softmax, inner, self.buckets)
        else:
            tuned = tuning.for_attention(dim, mode, self.hopper, any(self.buckets))
            module = source.attention_module(dim, mode, self.masks, softmax, self.hopper, inner, self.buckets)
        program, items = self.program(module), tokens // tuned.rows + self.sequences
        size = heads * dim * jnp.dtype(self.dtype).itemsize
        cleared, gates = [number(size // 4), first, second], [*[NOTHING] * 4, number(0)]
        places, apart, totals = (0, 0), 0, [NOTHING, NOTHING]
        if self.gate:  # of u, v, q, k, or of the result; all of a row is cleared once
            places = {tuning.FORWARD: (1, 0), tuning.QUERIES: (2, 1), tuning.KEYS: (3, 1)}[mode]
            apart = 3 if mode == tuning.FORWARD else 4
            cleared = [number(0 if mode == tuning.KEYS else size * apart // 4), first, NOTHING]
            wide = 4 * heads * dim
            gates = [*(self.projected.at(size * at) for at in places), *(self.gate[0].at(wide * at) for at in places)]
            gates.append(number(apart * heads * dim))
            totals = [self.totals.at(wide * at) for at in places]
            first, second = (argument.at(size * at) for argument, at in zip((first, second), places, strict=True))
        work = [self.call.input(x) for x in self.blocks(tuned.rows, mode == tuning.KEYS, items)]
        listed = [self.offsets, number(self.sequences), number(tokens), *cleared, *work]
        masks = [number(min(x, EVERYTHING)) for x in (self.kind.max_distance, self.kind.sla_k1, self.kind.sla_k2)]
        last = [self.contexts, self.candidates, number(heads), real(self.kind.alpha), real(self.kind.scale), *masks]
        grid = items * heads
        if isinstance(tuned, tuning.WgmmaTuning):
            grid = min(grid, self.gpu.cores * tuned.minb)
            kept, streamed = [self.q, grads], [self.k, self.v]
            if mode == tuning.KEYS:
                kept, streamed = [self.k, self.v], [self.q, grads]
            maps = [self._map(x, 64) for x in kept] + [self._map(x, tuned.bn) for x in streamed]
            if not self.zeroed:
                self.zeroed.append(self.call.scratch(16))
                self.call.zero(self.zeroed[0], 16)
            arguments = [*maps, first, second, *listed, self.zeroed.pop(), *last]
            gates += totals
        else:
            arguments = [self.q, self.k, self.v, grads, first, second, sums, delta, *listed, *last]
            position, time, times = self.bias
            unit, is_log = real(self.kind.time_unit), number(int(self.kind.time_bucket_fn == "log"))
            arguments += [position, number(self.buckets[0]), time, number(self.buckets[1]), times, unit, is_log]
            arguments += [self.factor, self.of_bias]
        self.call.launch(program, source.ATTENTION, grid, tuned.threads, [*arguments, *gates], module.shared[0])

    def blocks(self, rows: int, ascending: bool, most: int) -> list[jax.Array]:
        """Return the list of blocks of ``rows``, and their number; XLA computes one list for all layers."""
        call = Call()
        sizes = [number(x) for x in (self.sequences, self.shape[0], rows, int(ascending))]
        found = call.output((most, 4), jnp.int32), call.output((1,), jnp.int32)
        call.launch(0, source.ATTENTION_WORK, 1, 1024, [call.input(self.arrays.offsets), *sizes, *found])
        return call.bind(machine.load(self.gpu, [source.attention_work_module()]), vmap_method="sequential")

    def program(self, module: source.Module) -> int:
        """Return the number of a module in the call."""
        if module not in self.modules:
            self.modules.append(module)
        return self.modules.index(module)

    def project(self, x: jax.Array, kernel: jax.Array, to: Argument, y: Argument) -> None:
        """Compute ``x kernel``, and u (in ``y``), v, q, k from it."""
        (tokens, dim), columns = x.shape, kernel.shape[1]
        module, slices = source.project_module(dim, columns // 4), columns // 256
        program, grid = self.program(module), slices * min(self.gpu.cores // slices, -(-tokens // 64))
        maps = (
            self.call.map(self.call.input(x), dim, 1, tokens, 64),
            self.call.map(self.call.input(kernel), columns, 1, dim, dim),
        )
        arguments = [*maps, self.gate[0], to, y, self.v, self.q, self.k, number(tokens)]
        self.call.launch(program, 0, grid, 128 * tuning.PROJECTING + 128, arguments, module.shared[0])

    def add_norm(
        self, kernel: int, y: Argument, projected: Argument, arguments: list[Argument], *last: Argument
    ) -> None:
        """Launch a kernel of `norms` for what is in the middle of ``y``; ``arguments`` are those after the bias."""
        middle = y.at(self.shape[1] * self.shape[2] * jnp.dtype(self.dtype).itemsize)
        self.over_rows(kernel, [middle, projected, *self.gate, *arguments], real(self.epsilon), *last)

    def over_rows(self, kernel: int, arguments: list[Argument], *last: Argument) -> None:
        """Launch a kernel of `norms`, gated."""
        tokens, width = self.shape[0], self.shape[1] * self.shape[2]
        program = self.program(source.norm_module(width, jnp.dtype(self.dtype).name, gated=True))
        arguments = [*arguments, number(tokens), number(4 * width), *last]
        norms.launch(self.call, self.gpu, program, kernel, (tokens, width), True, arguments)

    def _map(self, array: Argument, rows: int) -> Argument:
        tokens, heads, dim = self.shape
        return self.call.map(self.q if array == NOTHING else array, dim, heads, tokens, rows)

    def results(self) -> list[jax.Array]:
        return self.call.bind(machine.load(self.gpu, self.modules), vmap_method="sequential")
