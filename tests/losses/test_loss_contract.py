"""What holds for every loss: one table of losses, one list of promises."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow import losses

BATCH = 6


@dataclasses.dataclass(frozen=True)
class Case:
    """A loss, the floating-point arrays it is differentiated by, and the others; all with the batch first."""

    loss: Callable
    floats: dict[str, np.ndarray]
    others: dict[str, np.ndarray]

    def map(self, function):
        return dataclasses.replace(self, floats=jax.tree.map(function, self.floats))

    def rows(self, index):
        floats, others = jax.tree.map(lambda array: array[index], (self.floats, self.others))
        return dataclasses.replace(self, floats=floats, others=others)

    def evaluate(self):
        return values_and_gradients(self.loss, self.floats, self.others)


@functools.partial(jax.jit, static_argnums=0)
def values_and_gradients(loss, floats, others):
    """One value per example, and the gradients of their sum."""
    values, pull_back = jax.vjp(lambda floats: loss(**floats, **others), floats)
    return values, pull_back(jnp.ones_like(values))[0]


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


LABELS = {"labels": np.array([0, 1, 1, 0, 1, 0], np.int32)}
SESSIONS = {"sessions": np.array([3, 3, 3, -1, 9, -1], np.int32)}
IDS = {"item_ids": np.array([4, 5, 4, 6, 7, 8], np.int32)}
SAMPLED_IDS = {
    "positive_ids": np.arange(BATCH, dtype=np.int32),
    "negative_ids": np.arange(4 * BATCH, dtype=np.int32).reshape(BATCH, 4) % 5,
}
QUERY = {"query": normal(1, BATCH, 3)}
CASES = {
    "binary_cross_entropy": Case(losses.binary_cross_entropy, {"logits": normal(0, BATCH)}, LABELS),
    "binary_focal": Case(losses.binary_focal, {"logits": normal(0, BATCH)}, LABELS),
    "softmax_cross_entropy": Case(losses.softmax_cross_entropy, {"logits": normal(0, BATCH, 3)}, LABELS),
    "l2": Case(losses.l2, {"predictions": normal(0, BATCH)}, LABELS),
    "jrc": Case(losses.jrc, {"logits": normal(0, BATCH, 2)}, LABELS | SESSIONS),
    "bpr": Case(
        losses.bpr,
        {"positive_logits": normal(0, BATCH), "negative_logits": normal(1, BATCH, 4)},
        {"where": normal(2, BATCH, 4) > 0},
    ),
    "gbce": Case(
        losses.gbce,
        {"positive": normal(0, BATCH), "negative": normal(1, BATCH, 4), "alpha": np.full(BATCH, 0.3, np.float32)},
        {"where": normal(2, BATCH, 4) > 0},
    ),
    "in_batch_softmax": Case(
        losses.in_batch_softmax, QUERY | {"item": normal(2, BATCH, 3), "log_q": normal(3, BATCH)}, IDS
    ),
    "sampled_softmax": Case(
        losses.sampled_softmax,
        QUERY
        | {"positive": normal(2, BATCH, 3), "negatives": normal(3, BATCH, 4, 3)}
        | {"positive_log_q": normal(4, BATCH), "negative_log_q": normal(5, BATCH, 4)},
        SAMPLED_IDS,
    ),
}
every_loss = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def test_every_registered_loss_is_in_the_table():
    records = {name: losses.registry[name] for name in losses.registry.names()}
    shipped = {name for name, record in records.items() if getattr(losses, record.__name__, None) is record}
    assert shipped - {"reconstruction"} == set(CASES)  # it reads several outputs: tests/models/test_semantic_ids.py


@every_loss
def test_one_finite_float32_value_per_example(case):
    values, gradients = case.evaluate()
    assert values.shape == (BATCH,)
    assert values.dtype == jnp.float32
    assert np.all(np.isfinite(values))
    assert np.all(np.asarray(values) >= 0)
    for name, gradient in gradients.items():
        assert gradient.shape == case.floats[name].shape
        assert np.all(np.isfinite(gradient))
        assert np.any(np.asarray(gradient) != 0), name


@every_loss
def test_order_of_the_batch_does_not_matter(case):
    order = np.array([4, 2, 0, 5, 1, 3])
    values, gradients = case.evaluate()
    permuted_values, permuted_gradients = case.rows(order).evaluate()
    np.testing.assert_allclose(permuted_values, values[order], rtol=1e-6, atol=1e-6)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(permuted_gradients[name], gradient[order], rtol=1e-5, atol=1e-6)


@every_loss
def test_bfloat16_is_computed_in_float32(case):
    rounded = case.map(lambda array: jnp.asarray(array, jnp.bfloat16))
    values, gradients = rounded.evaluate()
    expected, expected_gradients = case.map(lambda array: array.astype(jnp.bfloat16).astype(np.float32)).evaluate()
    assert values.dtype == jnp.float32
    np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-6)
    for name, gradient in gradients.items():
        assert gradient.dtype == jnp.bfloat16
        np.testing.assert_allclose(gradient.astype(np.float32), expected_gradients[name], rtol=8e-3, atol=1e-6)


@every_loss
def test_extreme_logits_stay_finite(case):
    # 1e3 before a product of embeddings is 1e6 after it.
    values, gradients = case.map(lambda array: 1e3 * array).evaluate()
    assert np.all(np.isfinite(values))
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients.values())


@every_loss
def test_empty_batch(case):
    empty = case.rows(slice(0, 0))
    values, gradients = jax.eval_shape(functools.partial(values_and_gradients, empty.loss), empty.floats, empty.others)
    assert values.shape == (0,)
    assert all(gradient.shape[0] == 0 for gradient in gradients.values())


@every_loss
def test_integer_logits_are_refused_by_name(case):
    for name, array in case.floats.items():
        with pytest.raises(TypeError, match=rf"^{case.loss.__name__}: .* must be floating-point, got int32"):
            case.loss(**case.floats | {name: array.astype(np.int32)}, **case.others)


@every_loss
def test_nothing_is_broadcast(case):
    """A last axis of 1 too many, or an example too few, is an error that names loss and argument."""
    arrays = case.floats | case.others
    for name, array in list(arrays.items())[1:]:
        for wrong in (array[:-1], array[..., None]):
            with pytest.raises(ValueError, match=rf"^{case.loss.__name__}: .*{name}.* got \(") as error:
                case.loss(**arrays | {name: wrong})
            assert str(wrong.shape) in str(error.value)
