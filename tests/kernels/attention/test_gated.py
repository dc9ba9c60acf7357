"""Attention between a projection and a gate on CUDA, against the float64 statement; float32 on the emulation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.kernels import gated_attention
from tests.kernels.cuda import emulator

from . import statement
from .test_attention import ALPHA, SCALE

EPSILON = 1e-6
DIM = 64
HEADS = 4 if jax.default_backend() == "gpu" else 2  # 256 numbers: one kernel projects them on Hopper
CASES = [
    dataclasses.replace(case, heads=max(case.heads, HEADS), dim=DIM, width=DIM)
    for case in [*statement.CASES, statement.Case("wide", (3, 0, 9), heads=8)]  # two warps normalize a row
    if sum(case.lengths) and not case.position_buckets + case.time_buckets and str(case) != "odd"
]


@pytest.fixture(scope="module", autouse=True)
def gpu():
    with emulator.gpu_or_emulation():
        yield


def short(case):
    """The case with few tokens, for the emulation."""
    if len(case.lengths) != len(statement.MIXED):
        return case
    few = {"contexts": (2, 0, 1, 3), "candidates": (2, 0, 0, 7)}
    whole = case.contexts == case.lengths
    more = {name: getattr(case, name) and values for name, values in few.items()}
    return dataclasses.replace(case, lengths=(5, 0, 1, 70), **(more | ({"contexts": (5, 0, 1, 70)} if whole else {})))


def drawn(case, dtype="float32"):
    rng = np.random.default_rng(0)
    tokens, width = sum(case.lengths) + 3, case.heads * DIM  # the last three are padding
    x, kernel = (jnp.asarray(rng.normal(size=size), dtype) for size in ((tokens, 64), (64, 4 * width)))
    shift, scale, bias = (jnp.asarray(rng.normal(size=size), jnp.float32) for size in (4 * width, width, width))
    weights = rng.normal(size=(tokens, 3 * width)) * (np.arange(tokens) < sum(case.lengths))[:, None]
    return (x, kernel / 8, shift, scale, bias), jnp.asarray(weights, dtype)


def call(case, arrays, backend="cuda"):
    offsets = jnp.asarray(np.concatenate([[0], np.cumsum(case.lengths)]), jnp.int32)
    counts = {name: getattr(case, name) for name in ("contexts", "candidates")}
    counts = {name: jnp.asarray(value, jnp.int32) for name, value in counts.items() if value is not None}
    options = {"alpha": ALPHA, "scale": SCALE, "max_length": max(case.lengths), "backend": backend, **case.options}
    return gated_attention(*arrays, offsets, heads=case.heads, epsilon=EPSILON, **counts, **options)


def stated(case, x, kernel, shift, scale, bias):
    projected = x[: sum(case.lengths)] @ kernel + shift
    u, v, q, k = np.split(projected / (1 + np.exp(-projected)), 4, axis=1)
    heads = {name: x.reshape(-1, case.heads, DIM) for name, x in (("q", q), ("k", k), ("v", v))}
    mixed = statement.attention(case, "silu", ALPHA, SCALE, **heads).reshape(-1, case.heads * DIM)
    centered = mixed - mixed.mean(axis=1, keepdims=True)
    normed = centered / np.sqrt((centered * centered).mean(axis=1, keepdims=True) + EPSILON) * scale + bias
    return np.concatenate([u, mixed, normed * u], axis=1)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_the_statement(case):
    case = short(case)
    tokens = sum(case.lengths)
    arrays, weights = drawn(case)
    exact = [np.asarray(x, np.float64) for x in arrays]
    runs = []
    for _ in range(2):
        out, pullback = jax.vjp(lambda *arrays: call(case, arrays), *arrays)
        runs.append([out[:tokens], *pullback(weights)])
    for one, two in zip(*runs, strict=True):
        np.testing.assert_array_equal(one, two)
    got, *grads = runs[0]
    np.testing.assert_allclose(got, stated(case, *exact), rtol=1e-5, atol=1e-4)
    assert not np.asarray(grads[0][tokens:]).any()
    rng = np.random.default_rng(1)
    for place, grad in enumerate(grads):
        direction = rng.normal(size=grad.shape)
        moved = [[x + step * direction if at == place else x for at, x in enumerate(exact)] for step in (1e-6, -1e-6)]
        ends = [(np.asarray(weights[:tokens], np.float64) * stated(case, *arrays)).sum() for arrays in moved]
        products = np.asarray(grad, np.float64) * direction
        assert abs(products.sum() - (ends[0] - ends[1]) / 2e-6) <= 2e-5 * np.abs(products).sum() + 1e-3


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bfloat16(case):
    """By matrix instructions; on the emulation with few tokens."""
    case = case if jax.default_backend() == "gpu" else short(case)
    arrays, weights = drawn(case, "bfloat16")
    got, pullback = jax.vjp(lambda *arrays: call(case, arrays), *arrays)
    exact = [x.astype(jnp.float32) for x in arrays]
    want, reference = jax.vjp(lambda *arrays: call(case, arrays), *exact)
    pairs = zip((got, *pullback(weights)), (want, *reference(weights.astype(jnp.float32))), strict=True)
    errors = [float(np.linalg.norm(np.asarray(a, np.float64) - b) / np.linalg.norm(b)) for a, b in pairs]
    assert max(errors) < 2e-2, errors


def test_other_shapes_are_left_to_others():
    arrays, _ = drawn(CASES[0])
    assert call(CASES[0], arrays, "xla") is None
    x, kernel, *others = arrays
    offsets = jnp.array([0, 4])
    options = {"epsilon": EPSILON, "alpha": ALPHA, "scale": SCALE, "max_length": 4, "backend": "cuda"}
    assert gated_attention(x, kernel, *others, offsets, heads=HEADS // 2, **options) is not None
    assert gated_attention(x, kernel, *others, offsets, heads=2 * HEADS, **options) is None
    assert gated_attention(x, kernel[:, :-4], *others, offsets, heads=HEADS, **options) is None
