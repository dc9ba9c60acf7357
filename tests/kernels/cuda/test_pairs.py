"""Dot products of pairs on tensor cores, on a GPU or emulated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.kernels import pairs, pairwise_dots

CASES = [(1, 26, 32), (3, None, 64), (9, 8, 96), (2, 30, 32), (16, None, 32)]


def vectors(batch, first, rest, dim, dtype, seed=0):
    rng = np.random.default_rng(seed)
    parts = [jnp.asarray(rng.normal(size=(batch, n, dim)), dtype) for n in (first, rest) if n is not None]
    return parts[0], parts[1] if rest is not None else None


@pytest.mark.parametrize(("first", "rest", "dim"), CASES, ids=lambda n: str(n))
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_kernels_agree_with_float64(first, rest, dim, dtype):
    """Batches that do not fill their last block, odd numbers of pairs."""
    a, b = vectors(11, first, rest, dim, dtype)
    assert pairs._machine(a, b) is not None
    both = np.asarray(a if b is None else jnp.concatenate([a, b], axis=1), np.float64)
    i, j = np.triu_indices(both.shape[1], k=1)
    out, pullback = jax.vjp(pairwise_dots, a, b)
    want = np.einsum("bid,bjd->bij", both, both)[:, i, j]
    tolerance = {"bfloat16": 2**-8, "float16": 2**-10}[dtype]
    assert out.dtype == dtype
    np.testing.assert_allclose(np.asarray(out, np.float64), want, rtol=tolerance, atol=1e-4)

    weights = jnp.asarray(np.random.default_rng(1).normal(size=out.shape), dtype)
    grads = [np.asarray(grad, np.float64) for grad in pullback(weights) if grad is not None]
    expected = np.zeros_like(both)
    np.add.at(expected, (slice(None), i), np.asarray(weights, np.float64)[..., None] * both[:, j])
    np.add.at(expected, (slice(None), j), np.asarray(weights, np.float64)[..., None] * both[:, i])
    np.testing.assert_allclose(np.concatenate(grads, axis=1), expected, rtol=tolerance, atol=1e-4)


def test_the_kernels_and_xla_agree():
    a, b = vectors(5, 1, 6, 64, "bfloat16")
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(5, 21)), "bfloat16")
    for got, want in (
        (pairwise_dots(a, b), pairs._dots(a, b)),
        *zip(jax.vjp(pairwise_dots, a, b)[1](weights), pairs._gradient(a, b, weights), strict=True),
    ):
        np.testing.assert_allclose(np.asarray(got, np.float32), np.asarray(want, np.float32), rtol=2e-2, atol=2e-2)


def test_under_jit_scan_and_vmap():
    a, b = vectors(6, 1, 3, 32, "bfloat16")
    want = np.asarray(pairwise_dots(a, b), np.float32)
    np.testing.assert_array_equal(np.asarray(jax.jit(pairwise_dots)(a, b), np.float32), want)
    split = [x.reshape(2, 3, *x.shape[1:]) for x in (a, b)]
    mapped = jax.vmap(pairwise_dots)(*split)
    np.testing.assert_array_equal(np.asarray(mapped, np.float32).reshape(want.shape), want)
    _, scanned = jax.lax.scan(lambda carry, x: (carry, pairwise_dots(*x)), 0, tuple(split))
    np.testing.assert_array_equal(np.asarray(scanned, np.float32).reshape(want.shape), want)


@pytest.mark.parametrize(
    ("batch", "first", "rest", "dim", "dtype"),
    [(4, 1, 3, 32, "float32"), (4, 1, 3, 24, "bfloat16"), (3, 33, None, 32, "bfloat16"), (0, 1, 3, 32, "bfloat16")],
)
def test_what_the_kernels_do_not_take_goes_to_xla(batch, first, rest, dim, dtype):
    a, b = vectors(batch, first, rest, dim, dtype)
    assert pairs._machine(a, b) is None
    count = first + (rest or 0)
    assert pairwise_dots(a, b).shape == (batch, count * (count - 1) // 2)
