"""Clipping by the global norm, computed or handed in."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sparrow import dense
from sparrow.dense import clip_by_global_norm, global_norm, squared_norm

GRADS = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([[4.0]])}


def clipped(max_norm, grads=GRADS, **extra):
    tx = clip_by_global_norm(max_norm)
    return tx.update(grads, tx.init(grads), **extra)[0]


@pytest.mark.parametrize("max_norm", [0.1, 4.999, 5.0, 100.0])
def test_equals_optax(max_norm):
    expected, _ = optax.clip_by_global_norm(max_norm).update(GRADS, optax.EmptyState())
    for name in GRADS:
        np.testing.assert_allclose(clipped(max_norm)[name], expected[name], rtol=1e-6)


def test_shares_of_a_tree_clip_as_the_whole():
    whole = clipped(1.0)
    norm = jnp.sqrt(squared_norm(GRADS["a"]) + squared_norm(GRADS["b"]))
    for name in GRADS:
        np.testing.assert_array_equal(clipped(1.0, GRADS[name], global_norm=norm), whole[name])
        assert not np.allclose(clipped(1.0, GRADS[name]), whole[name])


def test_gradients_that_are_not_finite_show():
    assert np.isnan(clipped(1.0, {"a": jnp.array([1.0, jnp.nan])})["a"]).all()
    np.testing.assert_array_equal(clipped(1.0, {"a": jnp.array([1.0, jnp.inf])})["a"], [0.0, jnp.nan])


def test_zero_gradients_stay_zero():
    np.testing.assert_array_equal(clipped(1.0, jnp.zeros(3)), 0.0)


def test_narrow_types_are_summed_in_float32():
    ones = jnp.ones(100_000, jnp.bfloat16)
    assert float(global_norm({"a": ones, "b": ones})) == pytest.approx(200_000**0.5, rel=1e-6)
    assert clipped(1.0, ones).dtype == jnp.bfloat16
    assert float(global_norm({"a": jnp.full(4, 300.0, jnp.float16)})) == 600.0  # the squares overflow float16
    assert float(global_norm({})) == 0.0


@pytest.mark.parametrize(("norm_type", "norm"), [(1, 7.0), (3, 91 ** (1 / 3)), (float("inf"), 4.0)])
def test_other_norms(norm_type, norm):
    """PyTorch's ``clip_grad_norm_``: times ``max_norm / norm`` where the norm is larger."""
    tx, _ = dense.build("sgd", 1.0, clip_norm=2.0, clip_norm_type=norm_type)
    grads = {"a": jnp.array([-3.0, 0.0]), "b": jnp.array([[4.0]])}
    updates, _ = tx.update(grads, tx.init(grads), grads)
    np.testing.assert_allclose(updates["a"], -grads["a"] * 2 / norm, rtol=1e-6)
    np.testing.assert_allclose(updates["b"], -grads["b"] * 2 / norm, rtol=1e-6)
    with pytest.raises(ValueError, match="clip_norm_type must be a finite number at least 1, got 0"):
        dense.build("sgd", 1.0, clip_norm=2.0, clip_norm_type=0)
