"""Whatever the inputs hold, the kernels do what the equation says and touch nothing else."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.kernels import cuda
from sparrow.kernels.types import EntryGradients, Lookups
from sparrow.rules import SHIPPED, Adam
from tests.kernels.native.problems import (
    float64_row_grads,
    learning_rate,
    random_state,
    reference_update,
    row_step,
    scalars,
    sgd_step,
)
from tests.kernels.native.test_update import UserWritten

ON_GPU = jax.default_backend() == "gpu"
CASES = 60 if ON_GPU else 5  # the emulation compiles each for itself
RULES = [*(rule() for rule in SHIPPED), UserWritten()] if ON_GPU else [Adam(), UserWritten()]


def indices(rng, limit, count):
    """Mostly in range, some just outside, some anything, in runs of every length."""
    drawn = np.where(
        rng.random(count) < 0.8,
        rng.integers(0, max(limit, 1), count),
        np.where(rng.random(count) < 0.5, rng.integers(-2, limit + 3, count), rng.integers(-(2**31), 2**31, count)),
    )
    if rng.random() < 0.5:
        drawn = np.repeat(drawn, rng.choice([1, 2, 5, 33, 70, 1100], count))[:count]
    return drawn.astype(np.int32)


@pytest.mark.parametrize("seed", range(CASES))
def test_update_and_lookup(seed):
    rng = np.random.default_rng(seed)
    dim, count = int(rng.choice([1, 3, 8, 17, 64, 96, 128, 260])), int(rng.choice([1, 5, 70, 1500, 5000]))
    num_rows, num_bags = int(rng.integers(1, 700)), int(rng.integers(1, 50))
    one_each = rng.random() < 0.3
    num_bags = count if one_each else num_bags
    table_dtype, grad_dtype = "float32", str(rng.choice(["float32", "bfloat16"]))
    gains = jnp.asarray(rng.normal(size=count), jnp.float32) if rng.random() < 0.5 else None
    grads = EntryGradients(
        ids=jnp.asarray(indices(rng, num_rows, count)),
        bags=None if one_each else jnp.asarray(indices(rng, num_bags, count)),
        gains=gains,
        bag_grads=jnp.asarray(rng.normal(size=(num_bags, dim)), grad_dtype),
    )
    table = jnp.asarray(rng.normal(size=(num_rows, dim)), table_dtype)
    step, numbers = sgd_step(dim), learning_rate(0.5)
    got, () = jax.jit(functools.partial(cuda.update, step))(table, (), grads, numbers)
    touched, sums = float64_row_grads(grads._replace(bag_grads=grads.bag_grads.astype(jnp.float32)), num_rows)
    np.testing.assert_array_equal(np.asarray(got)[~touched], np.asarray(table)[~touched])
    np.testing.assert_allclose(got, np.asarray(table, np.float64) - 0.5 * sums, rtol=1e-5, atol=1e-4 * count**0.5)

    offsets = None if one_each else np.sort(rng.integers(0, count + 1, num_bags + 1)).astype(np.int32)
    lookups = Lookups(grads.ids, None if one_each else grads.bags, offsets, gains, num_bags)
    pooled = jax.jit(cuda.lookup)(table, jax.tree.map(jnp.asarray, lookups))
    ids = np.asarray(grads.ids)
    inside = (ids >= 0) & (ids < num_rows)
    rows = np.asarray(table, np.float64)[np.where(inside, ids, 0)] * inside[:, None]
    rows = rows if gains is None else rows * np.asarray(gains, np.float64)[:, None]
    bags = [rows[i : i + 1] for i in range(count)] if one_each else [rows[a:b] for a, b in itertools.pairwise(offsets)]
    for got, bag in zip(np.asarray(pooled), bags, strict=True):
        np.testing.assert_allclose(got, bag.sum(0), rtol=1e-6, atol=1e-4 * np.abs(bag).sum(0).max(initial=0))


@pytest.mark.parametrize("seed", range(3 if ON_GPU else 1))
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule(rule, seed):
    """Against the reference on a CPU, for rows of any length, tables that are empty, gradients in 16 bits."""
    rng = np.random.default_rng(seed)
    dim, count = int(rng.choice([1, 8, 24, 100, 128, 200, 640])), int(rng.choice([40, 700, 3000]))
    num_rows, num_bags = int(rng.integers(3, 400)), int(rng.integers(1, 300))
    step = row_step(rule, dim, limits=bool(rng.random() < 0.3))
    numbers = scalars(rule, (0, num_rows // 3, num_rows // 3), step.limits)
    state = random_state(step, num_rows, rng)
    gains = rng.uniform(0.5, 2, count).astype(np.float32) if rng.random() < 0.5 else None
    bags = indices(rng, num_bags, count)
    grads = EntryGradients(
        ids=indices(rng, num_rows, count),
        bags=np.where((bags < 0) | (bags > num_bags), num_bags, bags),
        gains=gains,
        bag_grads=jnp.asarray(rng.normal(size=(num_bags, dim)), rng.choice(["float32", "bfloat16"])),
    )
    got = jax.jit(functools.partial(cuda.update, step))(*state, grads, numbers)
    wide = grads._replace(bag_grads=grads.bag_grads.astype(jnp.float32))
    want = reference_update(step, state, wide, numbers)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(g, np.float64), np.asarray(w, np.float64), rtol=1e-3, atol=2e-4)
