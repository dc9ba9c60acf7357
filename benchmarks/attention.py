"""Jagged attention inside JAX: correctness, and TFLOP/s of useful work, forward and backward.

    python benchmarks/attention.py check times          # on a GPU
    python benchmarks/attention.py ranker                # steps of an HSTU ranker: model, gradients, Adam
    python benchmarks/attention.py cpu                   # native and xla in turns, on a CPU

Useful work: the products of pairs that the mask lets through, 2 forward and 5 backward.
"""

from __future__ import annotations

import concurrent.futures
import pathlib
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from sparrow.kernels import jagged_attention
from sparrow.kernels.cuda import machine, source

HEADS, TOKENS = 4, 131_072


def cases(total: int = TOKENS) -> Iterator[tuple[str, int, np.ndarray]]:
    """Name, longest and lengths: full, and uniform from an eighth of the longest."""
    for length in (256, 1024, 4096):
        yield f"full {length}", length, np.full(total // length, length)
    for length in (256, 1024, 4096):
        rng = np.random.default_rng(length)
        yield f"jagged {length}", length, rng.integers(length // 8, length + 1, int(total / length / 0.5625))


def warm() -> None:
    """Compile all kernels at once, into the cache on disk."""
    found: Any = machine.find()
    modules = [source.attention_work_module()]
    for dim in (64, 128):
        for mode in range(3):
            for masks in range(3):
                modules.append(source.attention_module(dim, mode, masks, True, False))
                modules.append(source.attention_module(dim, mode, masks, False, found.arch == "sm_90"))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(found.image, modules))


def check() -> None:
    """Compare every mask, dim and score with the reference in float32; print relative errors."""
    from tests.kernels.attention.test_cuda import CASES
    from tests.kernels.attention.test_cuda import check as compare

    for score in ("silu", "softmax"):
        for dim in (64, 24, 128):
            for case in CASES:
                try:
                    text = " ".join(f"{error:.1e}" for error in compare(case, dim, score))
                except AssertionError as error:
                    text = f"WRONG {str(error)[:300]}"
                print(f"check {score} d{dim} {case}: o, dk, dq, dv {text}", flush=True)


def step(offsets: Any, longest: int, backend: str, **options: Any) -> Any:
    """Return a jitted forward and backward."""

    def both(q: Any, k: Any, v: Any, grads: Any) -> Any:
        def attend(q: Any, k: Any, v: Any) -> Any:
            alpha, scale = q.shape[2] ** -0.5, 1 / longest
            more = {"alpha": alpha, "scale": scale, "backend": backend}
            return jagged_attention(q, k, v, offsets, max_length=longest, **more, **options)

        out, pullback = jax.vjp(attend, q, k, v)
        return out, *pullback(grads)

    return jax.jit(both)


def milliseconds(call: Any, *arrays: Any, repeats: int = 20, rounds: int = 5) -> float:
    """Median over rounds of the mean time of a call."""
    jax.block_until_ready(call(*arrays))
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(repeats):
            result = call(*arrays)
        jax.block_until_ready(result)
        found.append((time.perf_counter() - begin) / repeats * 1e3)
    return statistics.median(found)


def draw(tokens: int, dim: int, dtype: Any = jnp.bfloat16) -> list[Any]:
    keys = jax.random.split(jax.random.key(0), 4)
    return [jax.random.normal(key, (tokens, HEADS, dim), dtype) for key in keys]


def times() -> None:
    """TFLOP/s of all cases: silu, silu with context and candidates, softmax."""
    for score, dim, masks in (("silu", 128, 0), ("silu", 64, 0), ("silu", 128, 1), ("softmax", 128, 0)):
        for name, longest, lengths in cases():
            tokens, work = int(lengths.sum()), lengths * (lengths + 1) / 2
            options: dict[str, Any] = {"score": score}
            if masks:
                few = np.minimum(64, lengths // 4)
                options |= {"contexts": jnp.full(len(lengths), 4), "candidates": jnp.asarray(few)}
                work = work - few * (few - 1) / 2 + 6
            offsets = jnp.asarray(np.concatenate([[0], np.cumsum(lengths)]), jnp.int32)
            spent = milliseconds(step(offsets, longest, "cuda", **options), *draw(tokens, dim))
            rate = 3.5 * 4 * HEADS * dim * float(work.sum()) / spent / 1e9
            print(f"{score} d{dim} masks {masks} {name}: {tokens} tokens {spent:.3f} ms {rate:.0f} TFLOP/s", flush=True)
    offsets = jnp.array([0, 16384, 65536], jnp.int32)
    spent = milliseconds(step(offsets, 49152, "cuda"), *draw(65536, 128), repeats=3, rounds=3)
    peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)
    print(f"sequences of 16384 and 49152: {spent:.2f} ms, peak memory of all so far {peak / 2**30:.2f} GiB", flush=True)


def ranker(small: bool = False) -> None:
    """Time a training step of `HSTURanker` on jagged rows, one candidate an example."""
    shapes = [(200, 1024, 4, 256, 4), (1024, 64, 4, 256, 4), (4096, 8, 4, 256, 4), (4096, 32, 8, 1024, 8)]
    shapes.append((16384, 4, 4, 256, 4))
    for longest, batch, layers, dim, heads in [(24, 4, 2, 64, 4)] if small else shapes:
        lengths = np.random.default_rng(longest).integers(longest // 8, longest + 1, batch)
        call, arrays, weights = _ranker_step(longest, lengths, layers, dim, heads)
        spent = milliseconds(call, *arrays, repeats=1 if small else 10, rounds=1 if small else 5)
        tokens = lengths + 1
        pairs = float((tokens * (tokens + 1) / 2).sum())
        work = 6 * weights * float(tokens.sum()) + layers * 3.5 * 4 * dim * pairs
        peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**30
        shape = f"L {longest}, batch {batch}, {layers} layers, dim {dim}, {heads} heads, {int(tokens.sum())} tokens"
        print(
            f"ranker {shape}: {spent:.2f} ms, {work / spent / 1e9:.0f} TFLOP/s, peak so far {peak:.1f} GiB", flush=True
        )


def _ranker_step(longest: int, lengths: np.ndarray, layers: int, dim: int, heads: int) -> tuple[Any, Any, float]:
    """Return a jitted step, its arrays, and the weights of the layers over tokens."""
    import optax
    from flax import nnx

    from sparrow.embedding import Jagged
    from sparrow.models import functional
    from sparrow.models.inputs import Inputs
    from sparrow.models.layers.towers import TaskTower
    from sparrow.models.rankers.hstu_rankers import HSTURanker
    from sparrow.models.sequences.gated import STU
    from sparrow.models.sequences.hstu_channel import HSTUChannel

    width = dim // heads
    stu = STU(
        dim, heads, width, width, scaling_seqlen=longest, num_position_buckets=longest + 1, attn_num_layers=layers
    )
    inputs = Inputs(acts={"item": dim}, sequences={"clicks": dim}, groups={"uih": ["clicks"], "candidate": ["item"]})
    towers = (TaskTower("click"),)
    model = HSTURanker(inputs, channels=(HSTUChannel(stu),), task_towers=towers, item_hidden_dim=dim, rngs=nnx.Rngs(0))
    apply, params, rest = functional(model)
    optimizer = optax.adam(1e-3)
    state = optimizer.init(params)
    offsets = jnp.asarray(np.concatenate([[0], np.cumsum(lengths)]), jnp.int32)
    held = -(-int(lengths.sum()) // 128) * 128  # learned sizes are multiples of larger powers of two
    rows = jax.random.normal(jax.random.key(0), (held, dim), jnp.bfloat16)
    items = jax.random.normal(jax.random.key(1), (len(lengths), dim), jnp.bfloat16)
    labels = jnp.asarray(np.arange(len(lengths)) % 2, jnp.float32)

    def loss(params: Any, rows: Any, items: Any, offsets: Any) -> Any:
        params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
        jagged = Jagged(rows, offsets)
        acts = {"clicks": jagged.pad(longest)._replace(jagged=jagged), "item": items}
        logits = apply.train(params, rest, acts, {})[0]["click"].astype(jnp.float32)
        return optax.sigmoid_binary_cross_entropy(logits, labels).mean()

    @jax.jit
    def step(params: Any, state: Any, rows: Any, items: Any, offsets: Any) -> Any:
        value, (grads, *others) = jax.value_and_grad(loss, argnums=(0, 1, 2))(params, rows, items, offsets)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value, others

    return step, (params, state, rows, items, offsets), layers * 7.0 * dim * dim + dim * dim


def cpu() -> None:
    """Processor time of native and xla, in turns."""
    for score in ("silu", "softmax"):
        for batch, longest, dim in ((32, 200, 50), (16, 200, 64), (4, 1024, 64)):
            lengths = np.random.default_rng(0).integers(longest // 8, longest + 1, batch)
            offsets = jnp.asarray(np.concatenate([[0], np.cumsum(lengths)]), jnp.int32)
            arrays = draw(int(lengths.sum()), dim, jnp.float32)
            calls = {name: step(offsets, longest, name, score=score) for name in ("xla", "native")}
            spent: dict[str, list[float]] = {name: [] for name in calls}
            for _ in range(8):  # the first compiles
                for name, call in calls.items():
                    begin = time.process_time()
                    jax.block_until_ready(call(*arrays))
                    spent[name].append((time.process_time() - begin) * 1e3)
            xla, native = (statistics.median(values[1:]) for values in spent.values())
            shape = f"{batch} sequences of {longest // 8} to {longest}, {HEADS} heads of {dim}"
            print(f"{score} {shape}: xla {xla:.0f} ms, native {native:.0f} ms of processor time, x {xla / native:.1f}")


if __name__ == "__main__":
    print(jax.devices()[0].device_kind, jax.__version__)
    for task in sys.argv[1:]:
        if task in ("check", "times"):
            begin = time.perf_counter()
            warm()
            print(f"kernels compiled in {time.perf_counter() - begin:.0f} s", flush=True)
        {"check": check, "times": times, "ranker": ranker, "small": lambda: ranker(small=True), "cpu": cpu}[task]()
