"""The weighted mean, and the sum over tasks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sparrow import losses
from sparrow.losses import TaskWeights

ROWS = 6
quick = settings(max_examples=40, deadline=None, derandomize=True)
reduce = jax.jit(losses.reduce)
values = arrays(np.float32, ROWS, elements=st.floats(0, 10, width=32))
weights = arrays(np.float32, ROWS, elements=st.floats(0.125, 8, width=32))
counts = arrays(np.int32, ROWS, elements=st.integers(0, 3)).filter(np.any)


def equal(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@quick
@given(values, weights, st.floats(0.01, 100))
def test_only_the_ratio_of_the_weights_matters(v, w, scale):
    equal(reduce(v, w), np.average(v.astype(np.float64), weights=w))
    equal(reduce(v, np.float32(scale) * w), reduce(v, w))
    equal(reduce(v), reduce(v, np.full(ROWS, scale, np.float32)))


@quick
@given(values, counts)
def test_a_weight_of_n_is_n_examples_and_a_weight_of_0_is_none(v, n):
    equal(reduce(v, n), np.repeat(v.astype(np.float64), n).mean())


def test_masks_are_weights():
    equal(reduce(np.arange(ROWS, dtype=np.float32), np.arange(ROWS) % 2 == 0), 2.0)


def test_weights_of_zero_give_zero_and_no_gradient():
    def mean(v, w):
        return losses.reduce(v, w)

    value, gradients = jax.jit(jax.value_and_grad(mean, argnums=(0, 1)))(jnp.ones(ROWS), jnp.zeros(ROWS))
    assert value == 0
    assert all(np.all(gradient == 0) for gradient in gradients)


def test_no_examples_give_zero():
    assert reduce(np.zeros(0, np.float32)) == 0
    assert reduce(np.zeros(0, np.float32), np.zeros(0, np.float32)) == 0


def test_a_nan_is_not_hidden_by_its_weight():
    # A NaN in padding is a fault of the model, and a mean that looked well would hide it.
    assert np.isnan(reduce(np.array([1, np.nan, 1, 1, 1, 1], np.float32), np.array([1, 0, 1, 1, 1, 1], np.float32)))


def test_low_precision_is_reduced_in_float32():
    mean = jax.jit(losses.reduce)(jnp.full(1000, 1.0, jnp.bfloat16), jnp.full(1000, 0.1, jnp.bfloat16))
    assert mean.dtype == jnp.float32
    equal(mean, 1.0)


def test_bad_input():
    with pytest.raises(ValueError, match=r"^reduce: weights must have shape \(3,\), that of the values, got \(3, 1\)"):
        losses.reduce(jnp.zeros(3), jnp.zeros((3, 1)))
    with pytest.raises(TypeError, match=r"^reduce: values must be floating-point, got int32"):
        losses.reduce(jnp.zeros(3, jnp.int32))


V = {"click": jnp.array([1.0, 2.0, 6.0]), "buy": jnp.array([4.0, 8.0, 0.0])}


def test_without_weights_the_total_is_the_sum_of_the_means():
    total, terms = losses.combine(V)
    equal(total, 7.0)
    equal(terms["click"], 3.0)
    equal(terms["buy"], 4.0)


def test_task_weight_sample_weight_and_task_space_multiply():
    total, terms = jax.jit(
        lambda w, clicked: losses.combine(
            V,
            {"buy": TaskWeights(weight=0.5, in_task_space_weight=3.0, out_task_space_weight=1.0)},
            weights={"buy": w},
            indicators={"buy": clicked},
        )
    )(jnp.array([1.0, 1.0, 2.0]), jnp.array([1, 0, -1]))
    buy = 0.5 * (3 * 4 + 1 * 8 + 2 * 0) / (3 + 1 + 2)
    equal(terms["buy"], buy)
    equal(total, 3.0 + buy)


def test_a_task_whose_space_is_not_in_the_batch_adds_nothing():
    def total(v):
        tasks = {"buy": TaskWeights(out_task_space_weight=0.0)}
        return losses.combine({"buy": v}, tasks, indicators={"buy": jnp.zeros(3)})[0]

    value, gradient = jax.jit(jax.value_and_grad(total))(V["buy"])
    assert value == 0
    assert np.all(gradient == 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tasks": {"cick": TaskWeights()}}, "tasks names the task 'cick': did you mean 'click'"),
        ({"weights": {"cick": jnp.ones(3)}}, "weights names the task 'cick'"),
        ({"indicators": {"cick": jnp.ones(3)}}, "indicators names the task 'cick'"),
        ({"weights": {"buy": jnp.ones(2)}}, r"weights\['buy'\] must have shape \(3,\).* got \(2,\)"),
        ({"indicators": {"buy": jnp.ones((3, 1))}}, r"indicators\['buy'\] must have shape \(3,\).* got \(3, 1\)"),
        (
            {"tasks": {"buy": TaskWeights(out_task_space_weight=0.0)}},
            r"the task 'buy' has task-space weights \(in 1.0, out 0.0\) but no indicator; add indicators\['buy'\]",
        ),
        ({"values": {}}, "values has no task"),
        ({"values": {"buy": jnp.zeros(3, jnp.int32)}}, r"values\['buy'\] must be floating-point, got int32"),
    ],
)
def test_combine_refuses_by_name(arguments, message):
    with pytest.raises((TypeError, ValueError), match=f"^combine: {message}"):
        losses.combine(**{"values": V} | arguments)


def test_task_weights_refuse_negative_numbers():
    with pytest.raises(ValueError, match=r"^TaskWeights.out_task_space_weight must be a finite number at least 0"):
        TaskWeights(out_task_space_weight=-1)
