"""Binary, softmax and squared losses: what the equations imply, over random input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sparrow import losses

ROWS, CLASSES = 7, 4
quick = settings(max_examples=40, deadline=None, derandomize=True)


def floats(shape, low, high):
    return arrays(np.float32, shape, elements=st.floats(low, high, width=32))


logits = floats(ROWS, -50, 50)
bits = arrays(np.int32, ROWS, elements=st.integers(0, 1))
bce, focal = jax.jit(losses.binary_cross_entropy), jax.jit(losses.binary_focal)
softmax = jax.jit(losses.softmax_cross_entropy)


def equal(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=2e-6)


@quick
@given(logits, floats(ROWS, 0, 1), st.floats(0, 0.99))
def test_binary_cross_entropy_is_linear_in_the_smoothed_label(z, y, s):
    ones, zeros = np.ones(ROWS, np.float32), np.zeros(ROWS, np.float32)
    smoothed = y * (1 - s) + 0.5 * s
    equal(bce(z, y, s), smoothed * bce(z, ones, 0.0) + (1 - smoothed) * bce(z, zeros, 0.0))


@quick
@given(logits, bits)
def test_binary_losses_do_not_care_which_class_is_called_positive(z, y):
    equal(bce(z, y, 0.0), bce(-z, 1 - y, 0.0))
    equal(focal(z, y, 1.5, 0.25), focal(-z, 1 - y, 1.5, 0.75))


@quick
@given(logits, bits)
def test_focal_without_focus_is_half_the_cross_entropy(z, y):
    equal(focal(z, y, 0.0, 0.5), 0.5 * bce(z, y, 0.0))


def test_focal_weight_is_a_constant_to_the_gradient():
    z, y = jnp.array([0.7, -1.2]), jnp.array([1.0, 0.0])
    gradient = jax.jit(jax.grad(lambda z: losses.binary_focal(z, y, gamma=2.0, alpha=0.3).sum()))(z)
    p = 1 / (1 + np.exp(-np.asarray(z)))
    weight = np.where(y == 1, 0.3 * (1 - p) ** 2, 0.7 * p**2)
    equal(gradient, weight * (p - y))


def test_focal_keeps_the_smallest_weights():
    # 1 - sigmoid(30) is 9.4e-14; as a difference in float32 it would be 0.
    value = focal(np.full(ROWS, 30.0, np.float32), np.ones(ROWS, np.int32), 1.0, 0.5)
    np.testing.assert_allclose(value, 0.5 * np.exp(-30.0) ** 2, rtol=1e-5)


@quick
@given(floats((ROWS, CLASSES), -50, 50), arrays(np.int32, ROWS, elements=st.integers(0, 3)), st.floats(0, 0.99))
def test_softmax_cross_entropy_equals_its_equation(z, y, s):
    wide = z.astype(np.float64)
    log_p = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    equal(softmax(z, y, s), -(1 - s) * log_p[np.arange(ROWS), y] - s * log_p.mean(1))


@quick
@given(logits, bits)
def test_two_classes_are_a_binary_loss(z, y):
    equal(softmax(np.stack([0 * z, z], axis=1), y, 0.0), bce(z, y, 0.0))


def test_softmax_keeps_its_digits_at_large_logits():
    value = softmax(np.full((ROWS, 2), 1000.0, np.float32), np.zeros(ROWS, np.int32), 0.0)
    np.testing.assert_allclose(value, np.log(2), rtol=1e-7)


def test_softmax_allows_a_logit_of_minus_infinity():
    def total(z):
        return losses.softmax_cross_entropy(z, jnp.array([0])).sum()

    value, gradient = jax.jit(jax.value_and_grad(total))(jnp.array([[1.0, 1.0, -jnp.inf]]))
    equal(value, np.log(2))
    equal(gradient, [[-0.5, 0.5, 0.0]])


def test_softmax_label_that_is_no_class_gives_nan():
    values = softmax(np.zeros((ROWS, CLASSES), np.float32), np.array([-1, 0, 1, 2, 3, 4, 5], np.int32), 0.0)
    np.testing.assert_array_equal(np.isnan(values), [1, 0, 0, 0, 0, 1, 1])


@pytest.mark.parametrize("label_smoothing", [-0.1, 1.0, 1.5, float("nan"), "0.1", None])
@pytest.mark.parametrize("loss", [losses.binary_cross_entropy, losses.softmax_cross_entropy])
def test_label_smoothing_outside_its_interval(loss, label_smoothing):
    with pytest.raises(ValueError, match=rf"^{loss.__name__}: label_smoothing must be a finite number at least"):
        loss(jnp.zeros((2, 2)), jnp.zeros(2, jnp.int32), label_smoothing)


@pytest.mark.parametrize(("hyper", "name"), [({"gamma": -1.0}, "gamma"), ({"alpha": 1.01}, "alpha")])
def test_focal_hyper_parameters_outside_their_intervals(hyper, name):
    with pytest.raises(ValueError, match=rf"^binary_focal: {name} must be a finite number at least 0"):
        losses.binary_focal(jnp.zeros(2), jnp.zeros(2), **hyper)


def test_softmax_of_one_logit_names_the_right_loss():
    with pytest.raises(ValueError, match=r"two classes or more, got \(5, 1\).* use binary_cross_entropy"):
        losses.softmax_cross_entropy(jnp.zeros((5, 1)), jnp.zeros(5, jnp.int32))


def test_softmax_refuses_labels_that_are_not_integers():
    with pytest.raises(TypeError, match="softmax_cross_entropy: labels must be integers, got float32"):
        losses.softmax_cross_entropy(jnp.zeros((5, 3)), jnp.zeros(5))


def test_a_positive_weighs_as_much_as_that_many():
    logits, labels = jnp.array([-3.0, 0.5, 40.0, -40.0]), jnp.array([1, 0, 0, 1])
    plain = losses.binary_cross_entropy(logits, labels)
    weighed = losses.binary_cross_entropy(logits, labels, positive_weight=4.0)
    np.testing.assert_allclose(weighed, plain * jnp.where(labels == 1, 4.0, 1.0), rtol=1e-6)
    with pytest.raises(ValueError, match="positive_weight must be a finite number above 0, got 0"):
        losses.BinaryCrossEntropy(positive_weight=0)
