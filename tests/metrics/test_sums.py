"""Sums that keep counting where float32 stops."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sparrow import metrics
from sparrow.metrics import sums

quick = settings(max_examples=100, deadline=None, derandomize=True)


def total(pair):
    return sums.to_float64(pair)


def host(value):
    """A pair from a float64, on the host: additions run in NumPy's float32, the same arithmetic."""
    high = np.asarray(value, np.float32)
    return np.stack([high, np.asarray(value - high.astype(np.float64), np.float32)])


whole = st.integers(-(2**44), 2**44)


@quick
@given(whole, whole, whole)
def test_integers_add_exactly(a, b, c):
    left = sums.add(sums.add(host(a), host(b)), host(c))
    right = sums.add(host(a), sums.add(host(b), host(c)))
    assert int(total(left)) == int(total(right)) == a + b + c
    np.testing.assert_array_equal(sums.add(host(a), host(b)), sums.add(host(b), host(a)))


@quick
@given(arrays(np.float64, 8, elements=st.floats(0, 1e6)))
def test_other_numbers_keep_46_bits(values):
    running = host(0.0)
    for value in values:
        running = sums.add(running, host(value))
    np.testing.assert_allclose(total(running), values.sum(), rtol=2**-44, atol=1e-30)


@quick
@given(arrays(np.int32, 64, elements=st.integers(-(2**31), 2**31 - 1)))
def test_int32_splits_exactly(values):
    np.testing.assert_array_equal(total(jax.jit(sums.split)(values)), values)


def test_the_compiler_keeps_the_error_term():
    """2**24 ones after 2**24: compiled, with all optimizations, in one reduction and in many updates."""
    values = jnp.concatenate([jnp.full((1,), 2.0**24), jnp.ones((5000,))])
    assert total(jax.jit(sums.reduce)(values)) == 2**24 + 5000

    @jax.jit
    def many(start):
        return jax.lax.fori_loop(0, 5000, lambda _, s: sums.add(s, sums.split(jnp.float32(1))), start)

    assert total(many(sums.split(jnp.float32(2.0**40)))) == 2.0**40 + 5000


def test_a_reduction_is_exact_where_float32_is_not():
    rng = np.random.default_rng(0)
    values = (rng.random(20_001) * 10.0 ** rng.integers(-6, 6, 20_001)).astype(np.float32)
    exact = values.astype(np.float64).sum()
    np.testing.assert_allclose(total(jax.jit(sums.reduce)(values)), exact, rtol=1e-13)
    assert abs(float(jnp.sum(values)) - exact) / exact > 1e-10


def test_a_trillion_rows_still_count():
    """States merged with themselves 30 times: 1e12 rows, of which one more positive row still shows."""
    metric = metrics.Accuracy()
    rows = 1000
    batch = {"predictions": np.full(rows, 0.9, np.float32), "labels": (np.arange(rows) < 250).astype(np.float32)}
    state = metric.update(metric.init(), **batch)
    for _ in range(30):
        state = metric.merge(state, state)
    count = rows * 2**30
    assert metric.totals(state)["weight"] == count
    assert metric.compute(state) == 0.25
    more = metric.update(state, **batch)
    assert metric.totals(more)["weight"] == count + rows
    assert metric.totals(more)["total"] == count / 4 + 250

    auc = metrics.AUC()
    histogram = auc.update(auc.init(), **batch)
    for _ in range(30):
        histogram = auc.merge(histogram, histogram)
    histogram = auc.update(histogram, **batch)
    assert auc.totals(histogram)["positive"].sum() == count / 4 + 250


def test_float64_rows_are_read_in_full_where_jax_has_them():
    values = np.array([1.0, 1.0 + 1e-10])
    with jax.enable_x64(True):
        state = metrics.Mean().update(metrics.Mean().init(), jnp.asarray(values))
    np.testing.assert_allclose(metrics.Mean().compute(state), values.mean(), rtol=1e-13)


def test_sums_are_made_before_they_are_joined():
    """Within a concatenation, a GPU has one thread for all rows of a sum."""
    auc, rows = metrics.AUC(), jnp.zeros(8)
    for made in (jax.make_jaxpr(sums.reduce)(rows), jax.make_jaxpr(auc.update)(auc.init(), rows, rows)):
        written = str(made)
        assert written.rindex("optimization_barrier") > written.index(
            "reduce_sum" if "reduce_sum" in written else "reduce"
        )
