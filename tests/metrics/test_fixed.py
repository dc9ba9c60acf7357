"""Metrics of sums against NumPy, scikit-learn and exact ones; and properties over random data."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

from sparrow import metrics
from sparrow.metrics.auc import threshold_index, threshold_values
from tests.metrics.cases import run

ROWS = 32
pytestmark = pytest.mark.usefixtures("quick_compiler")
quick = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None, derandomize=True
)
probabilities = arrays(np.float32, ROWS, elements=st.floats(0, 1, width=32))
labels = arrays(np.float32, ROWS, elements=st.sampled_from([0.0, 1.0]))
weights = arrays(np.float32, ROWS, elements=st.sampled_from([0.0, 0.25, 1.0, 2.0, 3.0]))


def compute(metric, *columns):
    return metric.compute(metric.update(metric.init(), *columns))


@quick
@given(probabilities, labels, weights, st.integers(0, 2**ROWS - 1))
def test_batches_merge_in_any_order(p, y, w, bits):
    mine = (bits >> np.arange(ROWS)) & 1 == 1
    for metric in (metrics.AUC(), metrics.LogLoss(), metrics.Calibration(bins=4)):
        a, b = (metric.update(metric.init(), p, y, np.where(rows, w, np.float32(0))) for rows in (mine, ~mine))
        c = metric.update(metric.init(), p, y, w)
        ab, ba = metric.merge(a, b), metric.merge(b, a)
        assert metric.compute(ab) == pytest.approx(metric.compute(c), rel=1e-6, nan_ok=True)
        assert metric.compute(ab) == pytest.approx(metric.compute(ba), rel=1e-13, nan_ok=True)
        left, right = metric.merge(ab, c), metric.merge(a, metric.merge(b, c))
        assert metric.compute(left) == pytest.approx(metric.compute(right), rel=1e-13, nan_ok=True)
        assert math.isnan(metric.compute(ab)) == (metric.reason(ab) is not None)


@quick
@given(probabilities, labels, weights)
def test_auc_of_predictions_on_the_thresholds_is_exact(p, y, w):
    """Bins lose nothing when predictions sit on them; and only their order counts."""
    on_bins = threshold_values(101)[np.round(p * 100).astype(int)]
    exact = compute(metrics.ExactAUC(), on_bins, y, w)
    assert compute(metrics.AUC(101, add_origin=True), on_bins, y, w) == pytest.approx(exact, abs=1e-9, nan_ok=True)
    squeezed = threshold_values(101)[np.round(p * 100).astype(int) // 2 + 30]  # monotone, with new ties
    tied = compute(metrics.ExactAUC(), np.round(p * 100).astype(int) // 2, y, w)
    assert compute(metrics.AUC(101), squeezed, y, w) == pytest.approx(tied, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("thresholds", [2, 3, 200, 1000, 4096])
def test_threshold_index_is_the_comparison(thresholds):
    values = threshold_values(thresholds)
    beside = [np.nextafter(values, np.float32(side)) for side in (-1, 2)]
    p = np.clip(np.concatenate([values, *beside, np.random.default_rng(0).random(1000, np.float32)]), 0, 1)
    expected = (p[:, None] >= values).sum(axis=1) - 1
    np.testing.assert_array_equal(jax.jit(threshold_index, static_argnums=1)(p, thresholds), expected)


def test_saturated_predictions_and_the_origin():
    """All predictions exactly 1: the peers' curve has one point and no area, the one from the origin half of it."""
    p, y = np.ones(4, np.float32), np.float32([0, 1, 0, 1])
    assert compute(metrics.AUC(), p, y) == 0
    assert compute(metrics.AUC(add_origin=True), p, y) == 0.5


def test_scikit_learn_agrees():
    rng = np.random.default_rng(0)
    p = rng.random(2000).astype(np.float32)
    y = (rng.random(2000) < p).astype(np.float32)
    w = rng.random(2000).astype(np.float32)
    assert compute(metrics.LogLoss(), p, y, w) == pytest.approx(log_loss(y, p, sample_weight=w), rel=1e-6)
    assert compute(metrics.AUC(2000), p, y, w) == pytest.approx(roc_auc_score(y, p, sample_weight=w), abs=1e-4)
    assert compute(metrics.PRAUC(2000), p, y, w) == pytest.approx(
        average_precision_score(y, p, sample_weight=w), abs=1e-3
    )
    scores = rng.normal(size=(500, 4)).astype(np.float32)
    kind = rng.integers(0, 4, 500)
    share = np.asarray(jax.nn.softmax(scores))
    expected = log_loss(kind, share / share.sum(axis=1, keepdims=True))
    assert compute(metrics.LogLoss(), share, kind) == pytest.approx(expected, rel=1e-5)
    assert compute(metrics.LogLoss(from_logits=True), scores, kind) == pytest.approx(expected, rel=1e-5)
    per_class = roc_auc_score(kind, share / share.sum(axis=1, keepdims=True), multi_class="ovr")
    assert compute(metrics.MulticlassAUC(4, 2000, from_logits=True), scores, kind) == pytest.approx(per_class, abs=1e-3)


def test_logits_and_probabilities_are_the_same_predictions():
    rng = np.random.default_rng(1)
    z, y = rng.normal(size=100).astype(np.float32), rng.integers(0, 2, 100)
    p = np.asarray(jax.nn.sigmoid(z))
    two = np.stack([np.zeros_like(z), z], axis=1)
    entropy = metrics.NormalizedEntropy
    assert compute(entropy(from_logits=True), z, y) == pytest.approx(compute(entropy(), p, y), rel=1e-5)
    expected = pytest.approx(compute(metrics.Calibration(), p, y), rel=1e-5)
    assert compute(metrics.Calibration(from_logits=True), two, y) == expected
    assert compute(metrics.Calibration(), np.stack([1 - p, p], axis=1), y) == expected


def test_reliability_curve():
    metric = metrics.Calibration(bins=4)
    state = metric.update(metric.init(), [0.1, 0.2, 0.6, 1.0], [0, 1, 1, 0], [1.0, 3.0, 2.0, 2.0])
    details = metric.details(state)
    np.testing.assert_allclose(details["predicted"], [0.175, np.nan, 0.6, 1.0], rtol=1e-6)
    np.testing.assert_allclose(details["observed"], [0.75, np.nan, 1.0, 0.0], rtol=1e-6)
    np.testing.assert_allclose(details["weight"], [4, 0, 2, 2])
    assert details["expected_error"] == pytest.approx((4 * 0.575 + 2 * 0.4 + 2 * 1.0) / 8, rel=1e-6)
    assert metric.compute(state) == pytest.approx((0.7 + 1.2 + 2.0) / 5, rel=1e-6)
    none = metric.update(metric.init(), [0.5], [0])
    assert metric.reason(none) == "Calibration: no positive labels"


def test_classes_that_are_missing_are_left_out():
    p = np.float32([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.4, 0.5, 0.1]])
    metric = metrics.MulticlassAUC(3)
    state = metric.update(metric.init(), p, [0, 1, 1])
    assert metric.compute(state) == 1
    np.testing.assert_array_equal(metric.details(state)["left_out"], [2])
    alone = metric.update(metric.init(), p, [1, 1, 1])
    assert metric.reason(alone) == "MulticlassAUC: no class has both labels"


def test_ties_between_classes_count_as_wrong():
    p = np.float32([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]])
    assert compute(metrics.Accuracy(), p, [0, 1]) == 0
    assert compute(metrics.Accuracy(top_k=2), p, [0, 1]) == 1


def test_distinct_codes_of_64_bits():
    codes = np.array([[1, 2**40], [1, 2**41], [1, 2**40], [1 + 2**33, 2**40]])
    assert compute(metrics.UniqueRatio(), codes) == 0.75
    assert compute(metrics.UniqueRatio(), codes[:, 1].astype(np.uint64)) == 0.5


def test_labels_that_cannot_be_are_named():
    p = np.float32([0.1, 0.2, 0.3])
    cases = {
        metrics.AUC(): ([0, 1, 2], "AUC: 1 labels are not 0 or 1."),
        metrics.LogLoss(): ([0, 1, -1], "LogLoss: 1 labels are not in [0, 1], or the index of a class."),
        metrics.Accuracy(): ([0.5, 0.5, 1], "Accuracy: 2 labels are not 0 or 1, or the index of a class."),
        metrics.MAE(): ([np.inf, 0, 0], "MAE: 1 labels are not finite numbers."),
    }
    for metric, (y, reason) in cases.items():
        state = metric.update(metric.init(), p, np.float32(y))
        assert metric.reason(state).startswith(reason)
    classes = metrics.MulticlassAUC(2)
    state = classes.update(classes.init(), np.float32([[0.5, 0.5]] * 2), [1, 2])
    assert "1 labels are not integers from 0 to 1" in classes.reason(state)


def test_sums_beyond_float32_are_not_a_number():
    state = metrics.MSE().update(metrics.MSE().init(), np.float32([1e30]), np.float32([-1e30]))
    assert metrics.MSE().reason(state) == "MSE: the sums are too large for float32"


def test_shapes_that_would_broadcast_are_refused():
    for metric in (metrics.MAE(), metrics.AUC(), metrics.LogLoss()):
        with pytest.raises(ValueError, match=rf"{metric.name}\.update: predictions have shape"):
            metric.update(metric.init(), np.ones((4, 1), np.float32), np.ones(4))
    with pytest.raises(ValueError, match=r"top_k=3 needs predictions \(n, classes\)"):
        compute(metrics.Accuracy(top_k=3), np.ones(4), np.ones(4))
    with pytest.raises(ValueError, match=r"num_classes=3 needs \(n, 3\)"):
        compute(metrics.MulticlassAUC(3), np.ones((4, 2)), np.ones(4))
    with pytest.raises(ValueError, match=r"MAE\.update: predictions are one number"):
        compute(metrics.MAE(), 1.0, 1.0)


def test_options_out_of_range_are_named():
    for make, message in [
        (lambda: metrics.AUC(1), "AUC.thresholds must be an integer of at least 2, got 1"),
        (lambda: metrics.MulticlassAUC(1), "num_classes must be an integer of at least 2, got 1"),
        (lambda: metrics.MulticlassAUC(3, average="micro"), "average must be one of 'macro', 'weighted', got 'micro'"),
        (lambda: metrics.NormalizedEntropy(eta=0.5), "eta must be a finite number above 0 and below 0.5, got 0.5"),
        (lambda: metrics.Calibration(bins=0), "bins must be an integer of at least 1, got 0"),
        (lambda: metrics.Accuracy(top_k=0), "top_k must be an integer of at least 1, got 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.float64, np.int32, bool])
def test_any_number_type(dtype):
    p = np.array([0.0, 1.0, 1.0, 0.0]).astype(dtype)
    batch = {"predictions": p, "labels": np.array([0, 1, 0, 1])}
    assert metrics.MAE().compute(run(metrics.MAE(), batch)) == 0.5
    assert metrics.ExactAUC().compute(run(metrics.ExactAUC(), batch)) == 0.5


def test_inside_a_training_step():
    """A jitted step with gradients: the metric's state is carried beside the parameters."""
    auc, loss = metrics.AUC(), metrics.LogLoss(from_logits=True)
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(64, 3)).astype(np.float32), rng.integers(0, 2, 64).astype(np.float32)

    @jax.jit
    def step(parameters, states, x, y):
        def objective(parameters):
            logits = x @ parameters
            return jnp.mean(jnp.logaddexp(0, logits) - y * logits), logits

        (_, logits), gradient = jax.value_and_grad(objective, has_aux=True)(parameters)
        updated = auc.update(states[0], jax.nn.sigmoid(logits), y), loss.update(states[1], logits, y)
        return parameters - 0.1 * gradient, updated

    parameters, states = jnp.zeros(3), (auc.init(), loss.init())
    seen = []
    for _ in range(3):
        seen.append(x @ np.asarray(parameters))
        parameters, states = step(parameters, states, x, y)
    p, labels = 1 / (1 + np.exp(-np.concatenate(seen))), np.tile(y, 3)
    assert auc.compute(states[0]) == pytest.approx(compute(auc, p.astype(np.float32), labels), abs=1e-3)
    assert loss.compute(states[1]) == pytest.approx(log_loss(labels, p), rel=1e-5)
