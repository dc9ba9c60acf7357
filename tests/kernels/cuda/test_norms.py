"""Layer normalization by kernels, on a GPU or emulated, against float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.kernels import layer_norm, portable_attention
from sparrow.kernels.cuda import norms

EPSILON = 1e-5


def drawn(rows, dim, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x, kept, grads = (jnp.asarray(1 + rng.normal(size=(rows, dim)), dtype) for _ in range(3))
    return x, *(jnp.asarray(rng.normal(size=dim), jnp.float32) for _ in range(2)), kept, grads


def stated(x, scale, bias):
    x = x - x.mean(axis=1, keepdims=True)
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + EPSILON) * scale + bias


@pytest.mark.parametrize(("rows", "dim"), [(1, 32), (70, 96), (33, 256), (9, 768), (5, 1024)])  # 1 to 4 warps a row
@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-5), ("bfloat16", 2**-8)])
def test_against_float64(rows, dim, dtype, bound, gpu):
    x, scale, bias, kept, grads = drawn(rows, dim, dtype)
    assert norms.unsupported(dim, dtype) is None
    before = gpu.launches if hasattr(gpu, "launches") else None
    added = jnp.asarray(np.random.default_rng(2).normal(size=x.shape), dtype)
    (total, got), pullback = jax.vjp(lambda *arrays: layer_norm(EPSILON, True, *arrays), x, scale, bias, added)
    of_x, of_scale, of_bias, of_added = pullback((kept, grads))
    assert before is None or gpu.launches == before + 2
    np.testing.assert_array_equal(np.asarray(total, np.float32), np.asarray(x + added, np.float32))
    np.testing.assert_array_equal(np.asarray(of_x, np.float32), np.asarray(of_added, np.float32))
    exact, by, plus, along, weights = (np.asarray(array, np.float64) for array in (total, scale, bias, kept, grads))
    want = stated(exact, by, plus)
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=bound, atol=bound)
    np.testing.assert_allclose(of_bias, weights.sum(axis=0), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(of_scale, (weights * stated(exact, 1, 0)).sum(axis=0), rtol=1e-5, atol=1e-4)
    direction = np.random.default_rng(1).normal(size=x.shape)
    ends = [(weights * stated(exact + step * direction, by, plus)).sum() for step in (1e-5, -1e-5)]
    products = np.asarray(of_x, np.float64) * direction
    expected = (ends[0] - ends[1]) / 2e-5 + (along * direction).sum()
    assert abs(products.sum() - expected) <= bound * np.abs(products).sum()


def test_without_what_is_kept_and_the_same_bits():
    x, scale, bias, _, grads = drawn(300, 64, "bfloat16")
    both = [jax.vjp(lambda *arrays: layer_norm(EPSILON, False, *arrays), x, scale, bias) for _ in range(2)]
    kept = jax.vjp(lambda *arrays: layer_norm(EPSILON, True, *arrays), x, scale, bias)[1]((jnp.zeros_like(x), grads))
    for out, pullback in both:
        np.testing.assert_array_equal(np.asarray(out, np.float32), np.asarray(both[0][0], np.float32))
        for got, want in zip(pullback(grads), kept, strict=True):
            np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(want, np.float32))


def test_more_axes_and_no_rows():
    x, scale, bias, _, _ = drawn(6, 32, "float32")
    want = layer_norm(EPSILON, False, x, scale, bias)
    np.testing.assert_array_equal(layer_norm(EPSILON, False, x.reshape(2, 3, 32), scale, bias), want.reshape(2, 3, 32))
    assert layer_norm(EPSILON, False, x[:0], scale, bias).shape == (0, 32)


def test_programs_that_run_elsewhere_have_no_kernel(gpu):
    x, scale, bias, _, _ = drawn(6, 32, "float32")
    before = gpu.launches if gpu else 0
    with portable_attention():
        layer_norm(EPSILON, False, x, scale, bias)
    assert not gpu or gpu.launches == before
