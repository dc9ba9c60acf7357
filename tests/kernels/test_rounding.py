"""Stochastic rounding: unbiased, from noise whose numbers do not depend on each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.kernels.rounding import noise, round_stochastic

ROWS, DIM = 4096, 64


@pytest.fixture(scope="module")
def drawn():
    """(ROWS, DIM) noise of consecutive rows, as numbers from 0 to 1."""
    bits = jax.vmap(lambda row: noise(jnp.uint32(7), row, DIM))(jnp.arange(ROWS))
    assert int(bits.max()) < 2**16
    return np.asarray(bits) / 2**16


def test_noise_is_uniform_in_every_column(drawn):
    for column in drawn.T:
        counts = np.bincount((column * 16).astype(int), minlength=16)
        assert ((counts - ROWS / 16) ** 2).sum() / (ROWS / 16) < 60  # of 15 degrees of freedom: 1 in 4 million


def test_noise_of_columns_rows_and_seeds_does_not_depend_on_each_other(drawn):
    """The two columns that share a hash, above all."""
    centered = drawn - drawn.mean(axis=0)
    between = np.corrcoef(centered.T) - np.eye(DIM)
    assert np.abs(between).max() < 5.5 / ROWS**0.5
    other = np.asarray(jax.vmap(lambda row: noise(jnp.uint32(8), row, DIM))(jnp.arange(ROWS))) / 2**16
    for a, b in ((drawn[1:], drawn[:-1]), (drawn, other)):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 5 / (ROWS * DIM) ** 0.5


def test_noise_of_a_row_does_not_depend_on_its_length():
    longer, shorter = noise(jnp.uint32(1), jnp.int32(5), 9), noise(jnp.uint32(1), jnp.int32(5), 4)
    np.testing.assert_array_equal(longer[:4], shorter)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("x", [1.003, -1.003, 3.1e-3, -517.3, 1e-6, -3e-7])
def test_the_mean_is_kept(x, dtype):
    """Subnormal numbers of float16 too."""
    bits = noise(jnp.uint32(3), jnp.int32(2), 50_000)
    rounded = np.asarray(round_stochastic(jnp.full(50_000, x, jnp.float32), bits, jnp.dtype(dtype)), np.float64)
    low, high = np.unique(rounded)
    assert low < np.float32(x) < high
    assert abs(rounded.mean() - np.float32(x)) < 5 * (high - low) / 2 / 50_000**0.5


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_numbers_of_the_type_stay_and_what_is_no_number_stays_so(dtype):
    exact = jnp.asarray([0.0, -0.0, 1.0, -2.5, 2.0**-24, 0.0078125, jnp.inf, -jnp.inf], jnp.float32)
    every = jnp.full(8, 0xFFFF, jnp.uint32)
    np.testing.assert_array_equal(np.asarray(round_stochastic(exact, every, jnp.dtype(dtype)), np.float32), exact)
    payloads = jnp.asarray([0x7FFFFFFF, 0x7F800001, 0xFFFFFFFF, 0xFF800001, 0x7FC00000], jnp.uint32)
    nans = jax.lax.bitcast_convert_type(payloads, jnp.float32)
    assert bool(jnp.isnan(round_stochastic(nans, every[:5], jnp.dtype(dtype))).all())
