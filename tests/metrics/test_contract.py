"""Every metric × what every metric promises."""

import dataclasses
import math

import jax
import numpy as np
import pytest

from sparrow import metrics
from tests.metrics.cases import CASES, ROWS, names, run, take, weights

pytestmark = pytest.mark.usefixtures("quick_compiler")
EVERY = pytest.mark.parametrize("case", **names(CASES))
BATCH_FREE = pytest.mark.parametrize("case", **names([case for case in CASES if case.batch_free]))
COPIES = pytest.mark.parametrize("case", **names([case for case in CASES if case.counts_copies]))
TOLERANCE = {"rel": 2e-6, "abs": 1e-7}  # values of rows are float32; their sums are not the issue


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def with_weights(case, rng):
    return {**case.make(rng), "weights": weights(rng)}


def spoil(batch, rows):
    """Predictions that are NaN in ``rows``."""
    predictions = np.array(batch["predictions"], np.float32)
    predictions[rows] = np.nan
    return {**batch, "predictions": predictions}


def only(batch, rows):
    """The chosen rows, the others padded away: all batches of a metric have one shape, and compile once."""
    return {**batch, "weights": np.where(rows, batch["weights"], np.float32(0))}


@BATCH_FREE
def test_batches_and_merges_do_not_change_the_result(case, rng):
    batch = with_weights(case, rng)
    third = np.arange(ROWS) % 3
    a, b, c = (run(case.metric, only(batch, third == part)) for part in range(3))
    merge, compute = case.metric.merge, case.metric.compute
    whole, one_by_one = run(case.metric, batch), run(case.metric, *(only(batch, third == k) for k in range(3)))
    assert math.isfinite(compute(whole))
    assert compute(one_by_one) == pytest.approx(compute(whole), **TOLERANCE)
    assert compute(merge(merge(a, b), c)) == pytest.approx(compute(whole), **TOLERANCE)
    assert compute(merge(merge(a, b), c)) == pytest.approx(compute(merge(a, merge(b, c))), rel=1e-12)
    assert compute(merge(a, b)) == pytest.approx(compute(merge(b, a)), rel=1e-12)
    assert compute(merge(a, b)) != pytest.approx(compute(whole), rel=1e-9)


@EVERY
def test_init_is_neutral_in_a_merge(case, rng):
    state = run(case.metric, with_weights(case, rng))
    expected = case.metric.compute(state)
    assert math.isfinite(expected)
    assert case.metric.compute(case.metric.merge(state, case.metric.init())) == expected
    assert case.metric.compute(case.metric.merge(case.metric.init(), state)) == expected


@COPIES
def test_weight_two_is_two_copies_and_weight_zero_none(case, rng):
    batch = case.make(rng)
    third = ROWS // 3
    copies = np.repeat(np.arange(2 * third), np.repeat([2, 1], third))  # 24 rows: 0 0 1 1 ... 8 9 10 ...
    weight = np.repeat(np.float32([2, 1, 0]), third)
    ones = np.ones(ROWS, np.float32)
    expected = case.metric.compute(run(case.metric, {**take(batch, copies), "weights": ones}))
    assert case.metric.compute(run(case.metric, {**batch, "weights": weight})) == pytest.approx(expected, **TOLERANCE)
    assert case.metric.compute(run(case.metric, {**batch, "weights": ones})) != pytest.approx(expected, rel=1e-9)


@EVERY
def test_weights_of_one_are_no_weights(case, rng):
    batch = case.make(rng)
    expected = case.metric.compute(run(case.metric, batch))
    ones = np.ones(ROWS, np.float32)
    assert case.metric.compute(run(case.metric, {**batch, "weights": ones})) == pytest.approx(expected, rel=1e-6)


@EVERY
def test_rows_of_weight_zero_may_hold_anything(case, rng):
    batch = with_weights(case, rng)
    absent = batch["weights"] == 0
    padded = spoil(batch, absent) if case.name != "unique_ratio" else batch
    if batch["labels"] is not None:
        padded["labels"] = np.where(
            absent.reshape(-1, *[1] * (batch["labels"].ndim - 1)), np.float32(99), batch["labels"]
        )
    expected = case.metric.compute(run(case.metric, batch))
    assert absent.any()
    assert case.metric.compute(run(case.metric, padded)) == pytest.approx(expected, rel=1e-12)


@EVERY
def test_nothing_seen_is_nan_with_a_reason(case, rng):
    batch = case.make(rng)
    nothing = [
        case.metric.init(),
        run(case.metric, take({**batch, "weights": np.ones(ROWS, np.float32)}, slice(0, 0))),
        run(case.metric, {**batch, "weights": np.zeros(ROWS, np.float32)}),
    ]
    for state in nothing:
        assert math.isnan(case.metric.compute(state))
        assert case.metric.reason(state).startswith(case.metric.name + ": ")


@pytest.mark.parametrize("case", **names([case for case in CASES if case.name != "unique_ratio"]))
def test_a_nan_prediction_is_nan_with_a_reason(case, rng):
    ones = np.ones(ROWS, np.float32)
    state = run(case.metric, {**spoil(case.make(rng), [3, 5]), "weights": ones})
    assert math.isnan(case.metric.compute(state))
    assert case.metric.reason(state).startswith(case.metric.name + ": ")
    if "decayed" not in case.name:
        assert "2 predictions are not" in case.metric.reason(state)
        # A good batch does not make up for it.
        assert math.isnan(case.metric.compute(case.metric.update(state, **case.make(rng), weights=ones)))


@EVERY
@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_an_impossible_weight_is_nan_with_a_reason(case, rng, weight):
    state = run(case.metric, {**case.make(rng), "weights": np.where(np.arange(ROWS) == 4, weight, 1).astype("f4")})
    assert math.isnan(case.metric.compute(state))
    assert case.metric.reason(state).startswith(case.metric.name + ": ")
    if "decayed" not in case.name:
        assert "1 weights are not" in case.metric.reason(state)


@EVERY
def test_a_number_has_no_reason(case, rng):
    state = run(case.metric, with_weights(case, rng))
    assert isinstance(case.metric.compute(state), float)
    assert case.metric.reason(state) is None
    assert isinstance(case.metric.details(state), dict)


@EVERY
def test_update_inside_a_jitted_step(case, rng):
    batch = with_weights(case, rng)

    def step(state, batch):
        return case.metric.update(state, **batch)

    if case.metric.jittable:
        state = run(case.metric, batch)
        shapes = jax.eval_shape(step, case.metric.init(), batch)
        assert jax.tree.map(np.shape, shapes) == jax.tree.map(np.shape, state)
        assert float(jax.jit(case.metric.value)(state)) == pytest.approx(case.metric.compute(state), rel=1e-5)
    else:
        with pytest.raises(TypeError, match=r"cannot run inside jax.jit: return the predictions"):
            jax.eval_shape(step, case.metric.init(), batch)
        with pytest.raises(TypeError, match=r"call compute\(state\) outside of jax.jit"):
            metrics.ExactAUC().value(metrics.ExactAUC().init())


@EVERY
def test_update_leaves_the_old_state_and_the_callers_arrays_alone(case, rng):
    batch = with_weights(case, rng)
    state = run(case.metric, batch)
    before, given = case.metric.compute(state), {k: np.copy(v) for k, v in batch.items() if v is not None}
    case.metric.update(state, **batch)
    assert case.metric.compute(state) == before
    for key, array in given.items():
        np.testing.assert_array_equal(batch[key], array)
        batch[key][...] = 0
    assert case.metric.compute(state) == before


@EVERY
def test_the_metric_is_a_record(case):
    registry = metrics.registry
    assert registry.from_json(registry.to_json(case.metric)) == case.metric
    assert registry.from_yaml(registry.to_yaml(case.metric)) == case.metric
    assert hash(dataclasses.replace(case.metric)) == hash(case.metric)
    with pytest.raises(dataclasses.FrozenInstanceError):
        case.metric.anything = 1


@EVERY
def test_the_state_travels_as_bytes(case, rng):
    batch = with_weights(case, rng)
    state = run(case.metric, batch)
    again = metrics.from_bytes(case.metric, metrics.to_bytes(case.metric, state))
    assert case.metric.compute(again) == case.metric.compute(state)
    assert case.metric.compute(case.metric.update(again, **batch)) == case.metric.compute(
        case.metric.update(state, **batch)
    )
    empty = metrics.from_bytes(case.metric, metrics.to_bytes(case.metric, case.metric.init()))
    assert math.isnan(case.metric.compute(empty))


@EVERY
def test_wrong_shapes_are_refused_by_name(case, rng):
    batch = case.make(rng)
    with pytest.raises(ValueError, match=r"\.update: weights have shape \(3,\)"):
        run(case.metric, {**batch, "weights": np.ones(3)})
    with pytest.raises(TypeError, match=r"\.update: predictions are missing"):
        run(case.metric, {**batch, "predictions": None})
    if batch["labels"] is not None:
        with pytest.raises(ValueError, match=r"\.update: predictions have .* labels .*\(20,"):
            run(case.metric, {**batch, "labels": batch["labels"][:20]})
        with pytest.raises(TypeError, match=r"\.update: labels must be numbers"):
            run(case.metric, {**batch, "labels": np.full(ROWS, "yes")})


@EVERY
def test_groups_are_asked_for_or_refused(case, rng):
    batch = {**case.make(rng)}
    if case.metric.needs_groups:
        del batch["groups"]
        with pytest.raises(ValueError, match=r"update: groups are missing; give one key per row"):
            run(case.metric, batch)
    else:
        with pytest.raises(ValueError, match=r"update: groups were given, but .* does not group rows"):
            run(case.metric, {**batch, "groups": np.zeros(ROWS)})


def test_every_registered_metric_is_here():
    tested = {type(case.metric) for case in CASES} | {metrics.Collisions}  # of codes: tests/metrics/test_collisions.py
    registered = {name: metrics.registry[name] for name in metrics.registry.names()}
    shipped = {name: metric for name, metric in registered.items() if metric.__module__.startswith("sparrow.")}
    assert [name for name, metric in shipped.items() if metric not in tested] == []
