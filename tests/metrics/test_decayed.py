"""Training-time metrics: windows, broken windows, replicas."""

import math

import jax
import numpy as np
import pytest

from sparrow import metrics
from tests.metrics.cases import run

pytestmark = pytest.mark.usefixtures("quick_compiler")
MAE = metrics.Decayed(metrics.MAE(), decay_rate=0.5, decay_step=2)
AUC = metrics.DecayedAUC(thresholds=50, decay_rate=0.5, decay_step=2)
ROWS = metrics.Decayed(metrics.ExactAUC(), decay_rate=0.5, decay_step=2)


def errors(*values):
    """A batch whose errors are ``values``."""
    return {"predictions": np.float32(values), "labels": np.zeros(len(values), np.float32)}


def clicks(seed, labels=None):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 16) if labels is None else np.full(16, labels)
    return {"predictions": rng.random(16).astype(np.float32), "labels": y.astype(np.float32)}


def values_of(metric, batches):
    state, values = metric.init(), []
    for batch in batches:
        state = metric.update(state, **batch)
        values.append(metric.compute(state))
    return values, state


def test_windows():
    values, state = values_of(MAE, [errors(1, 1), errors(3, 3), errors(5, 5), errors(9, 9), errors(0, 0)])
    np.testing.assert_allclose(values, [np.nan, 2, 2, 0.5 * 2 + 0.5 * 7, 4.5])
    assert MAE.reason(MAE.init()) == "Decayed(MAE): no window of 2 updates has ended yet"
    assert MAE.details(state) == {"skipped_windows": 0}


def test_the_window_of_a_histogram_is_its_batches():
    a, b, c, d = (clicks(seed) for seed in range(4))
    values, _ = values_of(AUC, [a, b, c, d])
    plain = metrics.AUC(50)
    assert values[1] == values[2] == pytest.approx(plain.compute(run(plain, a, b)), rel=1e-6)
    # Equal shares of both windows: the histogram of all four batches, halved.
    assert values[3] == pytest.approx(plain.compute(run(plain, a, b, c, d)), rel=1e-6)
    assert AUC.reason(AUC.init()) == "DecayedAUC: no window of 2 updates has ended yet"


@pytest.mark.parametrize("metric", [AUC, ROWS, metrics.Decayed(metrics.AUC(50), 0.5, 2)], ids=repr)
def test_windows_of_one_class(metric):
    good = [clicks(1), clicks(2)]
    one_class = [clicks(3, labels=1), clicks(4, labels=1)]
    values, state = values_of(metric, [*good, *one_class, *good])
    assert all(map(math.isfinite, values[1:]))
    if metric is not AUC:
        assert values[3] == values[1] == pytest.approx(values[5], rel=1e-6)
        assert metric.details(state) == {"skipped_windows": 1}
        _, only = values_of(metric, one_class)
        assert metric.reason(only).endswith("the metric is not defined in any of the 1 windows so far")
    else:
        # The positives of the window do count in the histogram.
        assert values[3] != values[1]


@pytest.mark.parametrize("metric", [AUC, ROWS, metrics.Decayed(metrics.AUC(50), 0.5, 2)], ids=repr)
def test_a_broken_window_is_nan_and_the_next_starts_afresh(metric):
    broken = clicks(3)
    broken["predictions"][4] = np.nan
    good, later = [clicks(1), clicks(2)], [clicks(5), clicks(6)]
    values, state = values_of(metric, [*good, broken, clicks(4)])
    assert math.isfinite(values[2])
    assert math.isnan(values[3])
    assert metric.reason(state).startswith(metric.name)
    _, at_once = values_of(metric, [broken, clicks(4)])
    assert "no window" not in metric.reason(at_once)
    assert "not defined in any" not in metric.reason(at_once)
    _, fine = values_of(metric, good)
    assert math.isnan(metric.compute(metric.merge(fine, at_once)))
    values, _ = values_of(metric, [*good, broken, clicks(4), *later])
    assert values[-1] == pytest.approx(values_of(metric, later)[0][-1], rel=1e-6)


def test_replicas_in_step_are_one():
    left, right = [clicks(seed) for seed in range(4)], [clicks(seed) for seed in range(10, 14)]
    together = [{key: np.concatenate([a[key], b[key]]) for key in a} for a, b in zip(left, right, strict=True)]
    (_, a), (_, b), (expected, _) = (values_of(AUC, batches) for batches in (left, right, together))
    assert AUC.compute(AUC.merge(a, b)) == pytest.approx(expected[-1], rel=1e-6)

    (_, a), (_, b) = (values_of(MAE, [errors(v, v), errors(v, v)]) for v in (1, 3))
    (_, c) = values_of(MAE, [errors(5, 5), errors(5, 5)])
    assert MAE.compute(MAE.merge(a, b)) == 2
    assert MAE.compute(MAE.merge(MAE.merge(a, b), c)) == MAE.compute(MAE.merge(a, MAE.merge(c, b))) == 3


def test_a_decayed_metric_inside_a_scan():
    """The window ends inside of a compiled loop."""
    batches = [errors(v, v) for v in (1, 3, 5, 9, 0)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *batches)

    def step(state, batch):
        state = MAE.update(state, **batch)
        return state, MAE.value(state)

    _, values = jax.lax.scan(step, MAE.init(), stacked)
    np.testing.assert_allclose(values, [np.nan, 2, 2, 4.5, 4.5])


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"decay_rate must be a finite number at least 0 and below 1, got 1"):
        metrics.Decayed(metrics.MAE(), decay_rate=1)
    with pytest.raises(ValueError, match=r"DecayedAUC.decay_step must be an integer of at least 1, got 0"):
        metrics.DecayedAUC(decay_step=0)
    with pytest.raises(ValueError, match=r"metric must be a metric that is not decayed itself; got 'mae'"):
        metrics.Decayed("mae")
    with pytest.raises(ValueError, match=r"not decayed itself; got DecayedAUC"):
        metrics.Decayed(metrics.DecayedAUC())
    with pytest.raises(ValueError, match=r"unknown metric 'mea': did you mean"):
        metrics.registry.from_dict({"name": "decayed", "metric": {"name": "mea"}})
