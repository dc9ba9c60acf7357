"""The pooled lookup against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.kernels import Lookups, native, xla
from tests.kernels.native.problems import random_lookups

NUM_ROWS = 60


def float64_lookup(table, lookups):
    table, ids = np.asarray(table, np.float64), np.asarray(lookups.ids)
    out = np.zeros((lookups.num_bags, table.shape[1]))
    bags = np.arange(len(ids)) if lookups.bags is None else np.asarray(lookups.bags)
    gains = np.ones(len(ids)) if lookups.gains is None else np.asarray(lookups.gains, np.float64)
    for row, bag, gain in zip(ids, bags, gains, strict=True):
        if 0 <= row < len(table):
            out[bag] += gain * table[row]
    return out


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 8, 13, 32, 65, 300, 2047, 2048])
@pytest.mark.parametrize("with_gains", [False, True])
def test_every_dim(dim, with_gains):
    rng = np.random.default_rng(dim)
    table = jnp.asarray(rng.normal(size=(NUM_ROWS, dim)), jnp.float32)
    lookups = random_lookups(rng, NUM_ROWS, 40, with_gains=with_gains)
    got = jax.jit(native.lookup)(table, lookups)
    np.testing.assert_allclose(got, float64_lookup(table, lookups), rtol=1e-5, atol=1e-5)
    assert got.dtype == jnp.float32


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_every_number_of_a_type_is_read_exactly(dtype):
    bits = np.arange(2**16, dtype=np.uint16)
    numbers = bits.view(jnp.dtype(dtype)) if dtype != "float32" else bits.astype(np.float32)
    table = jnp.asarray(numbers[:, None])
    lookups = Lookups(jnp.arange(2**16, dtype=jnp.int32), None, None, None, 2**16)
    np.testing.assert_array_equal(native.lookup(table, lookups)[:, 0], numbers.astype(np.float32))


def test_one_id_per_bag_is_a_plain_gather():
    table = jnp.arange(20.0).reshape(5, 4)
    lookups = Lookups(jnp.asarray([4, -1, 0, 5, 4], jnp.int32), None, None, None, 5)
    want = np.where(np.asarray([[1], [0], [1], [0], [1]]), np.asarray(table)[[4, 0, 0, 0, 4]], 0)
    np.testing.assert_array_equal(native.lookup(table, lookups), want)


def test_the_bits_do_not_depend_on_the_number_of_threads_and_equal_the_reference():
    rng = np.random.default_rng(0)
    table = jnp.asarray(rng.normal(size=(NUM_ROWS, 24)), jnp.float32)
    lookups = random_lookups(rng, NUM_ROWS, 5000)
    want = jax.jit(xla.lookup)(table, lookups)
    for threads in (1, 2, 3, 8):
        got = jax.jit(lambda t, l, n=threads: native.lookup(t, l, threads=n))(table, lookups)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dim", [8, 20, 104])
@pytest.mark.parametrize("with_gains", [False, True])
def test_more_activations_than_caches_hold(dim, with_gains):
    """From 10 MB on the kernel writes past the caches."""
    rng = np.random.default_rng(dim)
    table = jnp.asarray(rng.normal(size=(NUM_ROWS, dim)), jnp.float32)
    num_bags = 12 * 2**20 // (4 * dim)
    ids = rng.integers(-1, NUM_ROWS + 1, num_bags).astype(np.int32)  # some are no row
    gains = rng.normal(size=num_bags).astype(np.float32) if with_gains else np.ones(num_bags, np.float32)
    want = np.where(((ids >= 0) & (ids < NUM_ROWS))[:, None], np.asarray(table)[np.clip(ids, 0, NUM_ROWS - 1)], 0)
    lookups = Lookups(jnp.asarray(ids), None, None, jnp.asarray(gains) if with_gains else None, num_bags)
    np.testing.assert_array_equal(jax.jit(native.lookup)(table, lookups), want * gains[:, None])


@pytest.mark.parametrize("offsets", [[0, 0, 0], [0, 99, 3], [-7, 2, 3], [3, 1, 0], [2**31 - 1, -(2**31), 5]])
def test_offsets_of_nonsense_stay_within_the_arrays(offsets):
    lookups = Lookups(jnp.zeros(3, jnp.int32), jnp.zeros(3, jnp.int32), jnp.asarray(offsets, jnp.int32), None, 2)
    out = np.asarray(native.lookup(jnp.ones((1, 4)), lookups))
    assert ((out >= 0) & (out <= 3)).all()


@pytest.mark.parametrize(("num_rows", "num_bags", "count"), [(0, 3, 3), (4, 0, 0), (4, 3, 0)])
def test_nothing_to_read(num_rows, num_bags, count):
    offsets = jnp.asarray([0, *([count] * num_bags)], jnp.int32)
    lookups = Lookups(jnp.zeros(count, jnp.int32), jnp.zeros(count, jnp.int32), offsets, None, num_bags)
    out = np.asarray(native.lookup(jnp.ones((num_rows, 4)), lookups))
    assert out.shape == (num_bags, 4)
    assert (out == 0).all()
