"""JRC against its definition, written with pairs in float64; and what its sessions may be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sparrow import losses
from sparrow.losses.sessionwise import _ranking

ROWS = 9
quick = settings(max_examples=60, deadline=None, derandomize=True)
bits = arrays(np.int32, ROWS, elements=st.integers(0, 1))
sessions = arrays(np.int32, ROWS, elements=st.sampled_from([-7, 0, 3, 2**31 - 1]))
logits = arrays(np.float32, (ROWS, 2), elements=st.floats(-30, 30, width=32))


@jax.jit
def values_and_gradient(z, y, session, alpha):
    values, pull_back = jax.vjp(lambda z: losses.jrc(z, y, session, alpha), z)
    return values, pull_back(jnp.ones_like(values))[0]


def pair_by_pair(z, y, session, alpha):
    """Values, and the gradient of their sum."""
    z = z.astype(np.float64)
    values, gradient = np.zeros(ROWS), np.zeros((ROWS, 2))
    for i, c in enumerate(y):
        p = np.exp(z[i]) / np.exp(z[i]).sum()
        values[i] -= alpha * np.log(p[c])
        gradient[i] += alpha * (p - np.eye(2)[c])
        candidates = np.array([i] + [j for j in range(ROWS) if session[j] == session[i] and y[j] != c])
        q = np.exp(z[candidates, c]) / np.exp(z[candidates, c]).sum()
        values[i] -= (1 - alpha) * np.log(q[0])
        gradient[candidates, c] += (1 - alpha) * q
        gradient[i, c] -= 1 - alpha
    return values, gradient


@quick
@given(logits, bits, sessions, st.floats(0, 1))
def test_equals_its_definition(z, y, session, alpha):
    for actual, expected in zip(
        values_and_gradient(z, y, session, alpha), pair_by_pair(z, y, session, alpha), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("label", [0, 1])
def test_batch_of_one_class_is_finite_and_is_its_calibration_part(label):
    z = np.random.default_rng(0).normal(scale=1e3, size=(ROWS, 2)).astype(np.float32)
    y, session = np.full(ROWS, label, np.int32), np.zeros(ROWS, np.int32)
    values, gradient = values_and_gradient(z, y, session, 0.4)
    assert np.all(np.isfinite(values))
    assert np.all(np.isfinite(gradient))
    own, other = z[:, label], z[:, 1 - label]
    np.testing.assert_allclose(values, 0.4 * np.logaddexp(0, other - own), rtol=1e-6)


def test_sessions_on_the_host_may_be_wide_or_strings():
    z = np.random.default_rng(0).normal(size=(ROWS, 2)).astype(np.float32)
    y = np.array([0, 1, 1, 0, 1, 0, 0, 1, 1], np.int32)
    narrow = np.array([0, 0, 1, 1, 1, 2, 2, 2, 0], np.int32)
    wide = narrow.astype(np.int64) << 32  # all equal in their low 32 bits, which is all that JAX would keep of them
    strings = np.array(["ann", "bob", "eve"])[narrow]
    of_wide, of_strings = jax.jit(lambda z: (losses.jrc(z, y, wide), losses.jrc(z, y, strings)))(z)
    expected, _ = values_and_gradient(z, y, narrow, 0.5)
    np.testing.assert_allclose(of_wide, expected, rtol=1e-6)
    np.testing.assert_allclose(of_strings, expected, rtol=1e-6)
    assert not np.allclose(values_and_gradient(z, y, 0 * narrow, 0.5)[0], expected)


def test_label_that_is_no_class_gives_nan():
    y = np.array([2, 1, 0, -1, 1, 0, 0, 1, 1], np.int32)
    values, _ = values_and_gradient(np.zeros((ROWS, 2), np.float32), y, np.arange(ROWS, dtype=np.int32), 0.5)
    np.testing.assert_array_equal(np.isnan(values), (y != 0) & (y != 1))


def test_memory_is_linear_in_the_batch():
    batch = 2**16
    arrays_of_batch = jnp.zeros((batch, 2)), jnp.zeros(batch, jnp.int32), jnp.zeros(batch, jnp.int32)
    compiled = values_and_gradient.lower(*arrays_of_batch, 0.5).compile()
    # About 20 numbers per example; a matrix of pairs would be 65,536.
    assert compiled.memory_analysis().temp_size_in_bytes < 4 * 100 * batch


def test_nothing_is_added_up_in_an_order_that_a_gpu_may_choose():
    z, y, session = jnp.zeros((ROWS, 2)), jnp.zeros(ROWS, bool), jnp.zeros(ROWS, jnp.int32)
    program = jax.jit(jax.grad(lambda z: _ranking(z, y, session).sum())).lower(z).as_text()
    scatters = [line for line in program.splitlines() if "stablehlo.scatter" in line]
    assert scatters
    assert all("unique_indices = true" in line for line in scatters)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"logits": jnp.zeros(4)}, r"jrc: logits must have shape \(batch, 2\), got \(4,\)"),
        ({"logits": jnp.zeros((4, 3))}, r"jrc: logits must have shape \(batch, 2\), got \(4, 3\)"),
        ({"labels": jnp.zeros(4)}, "jrc: labels must be integers, got float32"),
        ({"sessions": jnp.zeros(4)}, "jrc: sessions must be integers, got float32"),
        ({"sessions": np.zeros(4)}, "jrc: sessions must be integers or strings, got float64"),
        ({"alpha": -0.1}, r"jrc: alpha must be a finite number at least 0 and at most 1, got -0.1"),
    ],
)
def test_bad_input(changed, message):
    good = {"logits": jnp.zeros((4, 2)), "labels": jnp.zeros(4, jnp.int32), "sessions": jnp.zeros(4, jnp.int32)}
    with pytest.raises((TypeError, ValueError), match="^" + message):
        losses.jrc(**good | changed)
