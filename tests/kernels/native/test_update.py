"""The fused update against the reference backend."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.kernels import EntryGradients, native, xla
from sparrow.kernels.native import shipped
from sparrow.rules import PER_ELEMENT, PER_ROW, SGD, Adam, RowwiseAdagrad, Rule, Slot
from tests.kernels.native.problems import (
    float64_row_grads,
    learning_rate,
    random_grads,
    random_state,
    row_step,
    scalars,
    sgd_step,
)

NUM_ROWS, FIRST_ROWS = 50, (0, 20, 20, 33)  # the second table is empty


def run(backend, step, table, slots, grads, numbers, **options):
    def update(table, slots, grads, numbers):
        return backend.update(step, table, slots, grads, numbers, **options)

    return jax.tree.map(np.asarray, jax.jit(update)(table, slots, grads, numbers))


def assert_close(got, want, ulps=32):
    """To a few ulp of the larger of the value and the terms it was summed from, which are of order 1."""
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(
            g.astype(np.float64), w.astype(np.float64), rtol=ulps * 2**-23, atol=ulps * 2**-23, strict=True
        )


@dataclasses.dataclass(frozen=True)
class UserWritten(Rule):
    """A vector and a number per row, and a step that needs a sum over the row first."""

    slots = {"mean": Slot(PER_ELEMENT), "size": Slot(PER_ROW)}

    def update(self, row, grad, slots, h):
        mean = 0.9 * slots["mean"] + 0.1 * jnp.tanh(grad)
        size = jnp.maximum(slots["size"], jnp.linalg.norm(mean))
        return row - h.learning_rate * mean / (1 + size), {"mean": mean, "size": size}


RULES = [*shipped.rules(), UserWritten()]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name}-{rule.kind()[1]}")
def test_every_rule_agrees_with_the_reference_and_gives_the_same_bits_on_two_threads(rule):
    rng = np.random.default_rng(0)
    step = row_step(rule, dim=19, limits=True)
    table, slots = random_state(step, NUM_ROWS, rng)
    grads = random_grads(rng, 19, NUM_ROWS, with_gains=True)
    numbers = scalars(rule, FIRST_ROWS, limits=True)

    @jax.jit  # one program: three would take three times as long to compile
    def all_three(*state):
        on_threads = [native.update(step, *state, threads=threads) for threads in (1, 2)]
        return *on_threads, xla.update(step, *state)

    one, two, reference = jax.tree.map(np.asarray, all_three(table, slots, grads, numbers))
    jax.tree.map(np.testing.assert_array_equal, two, one)
    assert_close(one, reference, ulps=256)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("rule", [SGD(), RowwiseAdagrad(), Adam()], ids=lambda rule: rule.name)
def test_sixteen_bit_tables_round_as_the_reference_does(rule, dtype, stochastic):
    rng = np.random.default_rng(1)
    step = row_step(rule, 24, dtype, stochastic=stochastic)
    table, slots = random_state(step, NUM_ROWS, rng)
    grads = random_grads(rng, 24, NUM_ROWS)
    numbers = scalars(rule, FIRST_ROWS)
    got, got_slots = run(native, step, table, slots, grads, numbers)
    want, want_slots = run(xla, step, table, slots, grads, numbers)
    assert got.dtype == want.dtype == jnp.dtype(dtype)
    assert_close(got_slots, want_slots)
    # Before rounding the two differ by an ulp of float32 here and there, which seldom moves the rounding.
    assert np.mean(got != want) < 0.01
    assert (got != np.asarray(table)).any()


def test_the_bits_do_not_depend_on_the_number_of_threads_that_sort():
    rule = RowwiseAdagrad()
    rng = np.random.default_rng(2)
    step = row_step(rule, 33)
    table, slots = random_state(step, 3000, rng)
    grads = random_grads(rng, 33, 3000, count=40_000, num_bags=900, with_gains=True)
    hot = grads._replace(ids=jnp.where(jnp.arange(40_000) % 3 == 0, 77, grads.ids))
    for entries in (grads, hot):
        one, *others = [
            run(native, step, table, slots, entries, scalars(rule, (0, 700)), threads=threads)
            for threads in (1, 2, 3, 8)
        ]
        for other in others:
            jax.tree.map(np.testing.assert_array_equal, other, one)


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 7, 8, 9, 16, 31, 64, 127, 255, 1023, 2047, 2048])
@pytest.mark.parametrize("with_bags", [False, True])
def test_every_dim(dim, with_bags):
    rng = np.random.default_rng(dim)
    step = sgd_step(dim)
    table, slots = random_state(step, NUM_ROWS, rng)
    grads = random_grads(rng, dim, NUM_ROWS, count=120, with_bags=with_bags)
    got, () = run(native, step, table, slots, grads, learning_rate(0.5))
    touched, sums = float64_row_grads(grads, NUM_ROWS)
    np.testing.assert_array_equal(got[~touched], np.asarray(table)[~touched])
    np.testing.assert_allclose(got, np.asarray(table, np.float64) - 0.5 * sums, rtol=1e-5, atol=1e-5)


def test_a_row_is_summed_in_the_order_of_its_entries():
    # 1e8 swallows a 1 that comes after it, and gives it back to nobody.
    big = jnp.asarray([[1e8], [1.0], [-1e8], [1.0]], jnp.float32)
    grads = EntryGradients(jnp.zeros(4, jnp.int32), None, None, big)
    got, () = run(native, sgd_step(1), jnp.zeros((1, 1)), (), grads, learning_rate(-1.0))
    assert got[0, 0] == 1.0


def test_a_touched_row_without_gradient_is_still_touched():
    rule = Adam()
    step = row_step(rule, 4)
    table, slots = jnp.ones((3, 4)), (jnp.ones((3, 4)), jnp.ones((3, 4)))
    grads = EntryGradients(jnp.asarray([1], jnp.int32), jnp.asarray([9], jnp.int32), None, jnp.ones((2, 4)))
    new_table, new_slots = run(native, step, table, slots, grads, scalars(rule))
    assert (new_table[1] != 1).all()
    assert (new_slots[0][1] != 1).all()
    assert (new_table[[0, 2]] == 1).all()


@pytest.mark.parametrize("num_bags", [0, 3])
@pytest.mark.parametrize("count", [0, 5])
def test_nothing_to_do(num_bags, count):
    # All ids are padding, or there are none; there may be no bags at all.
    grads = EntryGradients(
        jnp.asarray([-1, 7, 2**31 - 1, -(2**31), 8][:count], jnp.int32),
        jnp.zeros(count, jnp.int32),
        None,
        jnp.ones((num_bags, 4)),
    )
    table = jnp.arange(28.0).reshape(7, 4)
    got, () = run(native, sgd_step(4), table, (), grads, learning_rate(1.0))
    np.testing.assert_array_equal(got, table)


def test_a_table_without_rows():
    grads = EntryGradients(jnp.zeros(2, jnp.int32), None, None, jnp.ones((2, 4)))
    got, () = run(native, sgd_step(4), jnp.zeros((0, 4)), (), grads, learning_rate(1.0))
    assert got.shape == (0, 4)


def test_denormals_are_zero_on_every_thread():
    table = jnp.zeros((40_000, 4))
    grads = EntryGradients(jnp.arange(40_000, dtype=jnp.int32), None, None, jnp.full((40_000, 4), 1e-30))
    for threads in (1, 4):
        got, () = run(native, sgd_step(4), table, (), grads, learning_rate(1e-10), threads=threads)
        assert (got == 0).all()


def test_nan_and_infinity_stay_in_their_row():
    bad = jnp.asarray([[1.0, np.nan], [np.inf, 1.0], [1.0, 1.0]], jnp.float32)
    grads = EntryGradients(jnp.asarray([0, 1, 2], jnp.int32), None, None, bad)
    rule = RowwiseAdagrad()
    step = row_step(rule, 2, limits=True)
    state = jnp.zeros((3, 2)), (jnp.zeros(3),)
    got = run(native, step, *state, grads, scalars(rule, limits=True))
    want = run(xla, step, *state, grads, scalars(rule, limits=True))
    jax.tree.map(np.testing.assert_array_equal, got, want)
    assert np.isnan(got[0][0]).any()
    assert np.isfinite(got[0][2]).all()
