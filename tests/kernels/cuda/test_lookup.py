"""The pooled lookup, on a GPU or emulated."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.kernels import cuda, xla
from sparrow.kernels.cuda import tuning
from sparrow.kernels.types import Lookups
from tests.kernels.native.problems import random_lookups


def expected(table, lookups):
    """In float64."""
    ids = np.asarray(lookups.ids)
    valid = (ids >= 0) & (ids < len(table))
    rows = np.asarray(table, np.float64)[np.where(valid, ids, 0)] * valid[:, None]
    if lookups.gains is not None:
        rows *= np.asarray(lookups.gains, np.float64)[:, None]
    if lookups.bags is None:
        return rows
    pooled = np.zeros((lookups.num_bags, table.shape[1]))
    np.add.at(pooled, np.asarray(lookups.bags), rows)
    return pooled


@pytest.mark.parametrize(
    ("dim", "dtype", "out", "gains", "longest"),
    [
        (8, "float32", "float32", True, 5),
        (7, "bfloat16", "float32", False, 40),
        (128, "float32", "bfloat16", False, 20),
        (24, "float16", "float16", True, 3),
        (256, "bfloat16", "bfloat16", False, 4),
        (1, "float16", "float32", False, 4),
        (2048, "float32", "float32", False, 2),
    ],
)
def test_ragged_bags(dim, dtype, out, gains, longest):
    rng = np.random.default_rng(dim)
    table = jnp.asarray(rng.normal(size=(50, dim)), dtype)
    lookups = random_lookups(rng, 50, 21, longest, with_gains=gains)
    got = jax.jit(cuda.lookup, static_argnums=2)(table, lookups, out)
    assert got.dtype == out
    tolerance = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 2e-3}[out]
    want = expected(table, lookups)
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=tolerance, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize("dim", [4, 100])
@pytest.mark.parametrize("gains", [False, True])
def test_one_id_a_bag(dim, gains):
    rng = np.random.default_rng(dim)
    table = jnp.asarray(rng.normal(size=(50, dim)), jnp.float32)
    ids = jnp.asarray(rng.integers(-3, 55, 70), jnp.int32)
    weights = jnp.asarray(rng.random(70), jnp.float32) if gains else None
    lookups = Lookups(ids, None, None, weights, 70)
    got = np.asarray(jax.jit(cuda.lookup)(table, lookups))
    np.testing.assert_allclose(got, expected(table, lookups), rtol=1e-6, atol=0)
    np.testing.assert_array_equal(got, xla.lookup(table, lookups))


def test_empty_batches():
    table = jnp.ones((5, 4))
    none = Lookups(jnp.zeros(0, jnp.int32), None, None, None, 0)
    assert cuda.lookup(table, none, jnp.bfloat16).shape == (0, 4)
    bags = Lookups(jnp.zeros(0, jnp.int32), jnp.zeros(0, jnp.int32), jnp.zeros(4, jnp.int32), None, 3)
    np.testing.assert_array_equal(jax.jit(cuda.lookup)(table, bags), np.zeros((3, 4)))


def test_the_tuning_changes_no_bits(monkeypatch):
    rng = np.random.default_rng(1)
    table = jnp.asarray(rng.normal(size=(50, 32)), jnp.float32)
    lookups = random_lookups(rng, 50, 33, 20)
    want = jax.jit(cuda.lookup)(table, lookups)
    for change in (
        {"lanes": 4, "bags": 1, "at_once": 2, "warps": 2},
        {"lanes": 8, "bags": 3, "at_once": 4},
    ):
        monkeypatch.setattr(tuning, "for_lookup", lambda *_, c=change: dataclasses.replace(tuning.LookupTuning(4), **c))
        got = jax.jit(lambda t, x: cuda.lookup(t, x))(table, lookups)
        np.testing.assert_array_equal(got, want)
