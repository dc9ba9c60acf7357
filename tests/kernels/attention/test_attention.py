"""Jagged attention on every backend that runs here, against the float64 statement."""

import contextlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.kernels import jagged_attention, native
from tests.kernels.cuda import emulator

from . import statement

ALPHA, SCALE = 0.4, 0.7
BACKENDS = ["xla", "native", "cuda"]
EMULATED = ("candidates", "timed", "semi_local", "wide")
"""The cases of a softmax that backend "cuda" runs in; of silu, which has the same masks, all."""
CASES = [
    pytest.param(case, score, backend, id=f"{case}-{score}-{backend}")
    for case in statement.CASES
    for score in ("silu", "softmax")
    for backend in BACKENDS
    if backend != "cuda" or score == "silu" or str(case) in EMULATED
]


@pytest.fixture(autouse=True)
def gpu(request):
    parameters = getattr(getattr(request.node, "callspec", None), "params", {})
    with emulator.gpu_or_emulation() if parameters.get("backend") == "cuda" else contextlib.nullcontext():
        yield


def given(case, dtype=jnp.float32, seed=0):
    return {
        name: jnp.asarray(value, dtype if name in "qkv" else jnp.float32)
        for name, value in statement.arrays(case, seed).items()
    }


def call(case, score, backend, arrays):
    offsets = jnp.asarray(np.concatenate([[0], np.cumsum(case.lengths)]), jnp.int32)
    more = {
        name: jnp.asarray(getattr(case, name), jnp.int32)
        for name in ("contexts", "candidates")
        if getattr(case, name) is not None
    }
    options = {"score": score, "alpha": ALPHA, "scale": SCALE, "backend": backend, **more, **case.options}
    arrays = dict(arrays)
    q, k, v = (arrays.pop(name) for name in "qkv")
    return jagged_attention(q, k, v, offsets, max_length=max(case.lengths), **options, **arrays)


def stated(case, score, arrays):
    return statement.attention(case, score, ALPHA, SCALE, **arrays)


@pytest.mark.parametrize(("case", "score", "backend"), CASES)
def test_against_the_statement(case, score, backend):
    arrays = given(case)
    want = stated(case, score, {name: np.asarray(value, np.float64) for name, value in arrays.items()})
    got = np.asarray(call(case, score, backend, arrays))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("case", "score", "backend"), CASES)
def test_gradients_by_finite_differences(case, score, backend):
    """The derivative along a random direction of each array, in float64 by the statement."""
    if not sum(case.lengths):
        pytest.skip("nothing has no derivative")
    if len(case.lengths) == len(statement.MIXED):
        case = statement.dataclasses.replace(case, lengths=(5, 0, 1, 33, 12, 21), **_shorter(case))
    arrays = given(case)
    rng = np.random.default_rng(1)
    names = [name for name in arrays if name != "times"]
    out, pullback = jax.vjp(lambda x: call(case, score, backend, arrays | x), {name: arrays[name] for name in names})
    weights = rng.normal(size=out.shape)
    (grads,) = pullback(jnp.asarray(weights, out.dtype))
    exact = {name: np.asarray(value, np.float64) for name, value in arrays.items()}
    for name in names:
        direction = rng.normal(size=exact[name].shape)
        ends = [stated(case, score, exact | {name: exact[name] + step * direction}) for step in (1e-4, -1e-4)]
        want = np.sum(weights * (ends[0] - ends[1])) / 2e-4
        products = np.asarray(grads[name], np.float64) * direction
        got, bound = products.sum(), 1e-5 * np.abs(products).sum() + 1e-4
        assert abs(got - want) <= bound, (name, got, want)


def _shorter(case):
    few = {"contexts": (2, 0, 1, 3, 0, 2), "candidates": (2, 0, 0, 9, 12, 7)}
    whole = case.contexts == case.lengths
    return {
        "contexts": (5, 0, 1, 33, 12, 21) if whole else case.contexts and few["contexts"],
        "candidates": case.candidates and few["candidates"],
    }


@pytest.mark.parametrize("backend", BACKENDS[:2])  # tensor cores: test_cuda.py
def test_bfloat16_and_equal_bits(backend):
    case = statement.CASES[3]
    arrays = given(case, jnp.bfloat16)
    for score in ("silu", "softmax"):
        want = stated(case, score, {name: np.asarray(value, np.float64) for name, value in arrays.items()})
        both = [jax.vjp(lambda x, score=score: call(case, score, backend, x), arrays) for _ in range(2)]
        assert both[0][0].dtype == jnp.bfloat16
        got = np.asarray(both[0][0], np.float64)
        assert np.linalg.norm(got - want) <= 6e-3 * np.linalg.norm(want)
        one, two = (jax.tree.leaves((out, pull(jnp.ones_like(out)))) for out, pull in both)
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))


@pytest.mark.parametrize("backend", ["cuda"])
@pytest.mark.parametrize(
    ("name", "score"), [("timed", "silu"), ("biased", "softmax"), ("log_timed", "softmax"), ("semi_local", "silu")]
)
def test_bfloat16_by_matrix_instructions(name, score, backend):
    """Against the reference in float32: results, and the gradients of all arrays, biases among them."""
    case = next(case for case in statement.CASES if str(case) == name)
    case = statement.dataclasses.replace(case, lengths=(5, 0, 1, 70, 12, 21), **_shorter(case))
    arrays = given(case, jnp.bfloat16)
    exact = {name: array.astype(jnp.float32) for name, array in arrays.items()}
    weights = jnp.asarray(np.random.default_rng(1).normal(size=arrays["v"].shape), jnp.bfloat16)

    @jax.jit
    def reference(exact, weights):
        out, pullback = jax.vjp(lambda x: call(case, score, "xla", x), exact)
        return jax.tree.leaves((out, pullback(weights)))

    expected = reference(exact, weights.astype(jnp.float32))
    runs = []
    for _ in range(2):
        out, pullback = jax.vjp(lambda x: call(case, score, backend, x), arrays)
        runs.append([np.asarray(x, np.float64) for x in jax.tree.leaves((out, pullback(weights)))])
    for one, two, right in zip(*runs, expected, strict=True):
        np.testing.assert_array_equal(one, two)
        assert np.linalg.norm(one - right) <= 8e-3 * np.linalg.norm(right)


@pytest.mark.parametrize("backend", BACKENDS)
def test_under_jit_without_sequences_and_with_large_scores(backend):
    case = statement.Case("large", (40, 3))
    arrays = given(case)
    arrays["q"] = 100 * arrays["q"]
    for score in ("silu", "softmax"):
        want = stated(case, score, {name: np.asarray(value, np.float64) for name, value in arrays.items()})
        got = np.asarray(jax.jit(lambda x, score=score: call(case, score, backend, x))(arrays))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
    nothing = jnp.zeros((4, 2, 8))
    out = jagged_attention(nothing, nothing, nothing, jnp.zeros(1, jnp.int32), max_length=1, backend=backend)
    assert not np.asarray(out).any()


def test_bad_arguments():
    x = jnp.zeros((4, 1, 2))
    with pytest.raises(ValueError, match=r"q and k must be \(tokens, heads, dim\)"):
        jagged_attention(x, x[:, :, :1], x, jnp.array([0, 4]), max_length=4)
    with pytest.raises(ValueError, match="times and time_bias go together"):
        jagged_attention(x, x, x, jnp.array([0, 4]), max_length=4, times=jnp.zeros(4))
    with pytest.raises(ValueError, match="score must be"):
        jagged_attention(x, x, x, jnp.array([0, 4]), max_length=4, score="relu")
    with pytest.raises(ValueError, match="unknown backend 'nativ'"):
        jagged_attention(x, x, x, jnp.array([0, 4]), max_length=4, backend="nativ")


@pytest.mark.parametrize("backend", ["cuda"])
def test_what_a_gpu_does_not_compute(backend):
    offsets, wide = jnp.array([0, 4]), jnp.zeros((4, 1, 130))
    with pytest.raises(ValueError, match="heads of 130 numbers are longer than 128"):
        jagged_attention(wide, wide, wide, offsets, max_length=4, backend=backend)


LINEAR = """
import resource
import jax, jax.numpy as jnp
from sparrow.kernels import jagged_attention

def peak(length, score):
    x = jnp.full((length, 1, 8), 0.1)
    offsets = jnp.array([0, length])
    def total(q, k, v):
        return jagged_attention(q, k, v, offsets, max_length=length, score=score, backend="native").sum()
    jax.block_until_ready(jax.jit(jax.grad(total, (0, 1, 2)))(x, x, x))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

print(*(peak(length, score) for length in (1024, 16384) for score in ("silu", "softmax")))
"""


@pytest.mark.skipif(native.unavailable() is not None, reason="the native backend is not built")
def test_memory_is_linear_in_tokens():
    """A history of 16,384: all pairs of one head would be 1 GiB in float32; forward and backward take a few arrays."""
    done = subprocess.run([sys.executable, "-c", LINEAR], check=True, capture_output=True)
    _, before, *peaks = map(int, done.stdout.split())
    arrays = 16384 * 8 * 4
    assert max(peaks) - before < 32 * arrays + (32 << 20), (before, peaks)  # 48 MiB; the rest is the noise of a process
