"""XAUC against all pairs, one by one."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow import metrics
from sparrow.metrics.xauc import lower_and_earlier
from tests.metrics.cases import run

quick = settings(max_examples=100, deadline=None, derandomize=True)


def all_pairs(p, y, w):
    """``(concordant, all)`` weight over pairs, from the definition."""
    higher = (y[:, None] > y) & (p[:, None] > p)
    products = np.outer(w, w)
    return products[higher].sum(), np.triu(products, 1).sum()


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8, 9, 100, 257])
@pytest.mark.parametrize("levels", [2, 5, 10**6])
@pytest.mark.parametrize("weighted", [False, True])
def test_xauc_is_the_share_of_all_pairs(size, levels, weighted):
    rng = np.random.default_rng(size)
    p = rng.integers(0, levels, size).astype(np.float32)
    y = p + rng.integers(-levels, levels, size)
    w = rng.random(size) + 0.01 if weighted else np.ones(size)
    concordant, pairs = all_pairs(p, y, w)
    state = run(metrics.XAUC(), {"predictions": p, "labels": y, "weights": w if weighted else None})
    assert metrics.XAUC().compute(state) == pytest.approx(concordant / pairs, abs=1e-12)
    assert metrics.XAUC().details(state)["pairs"] == pytest.approx(pairs, rel=1e-12)


@quick
@given(st.permutations(range(37)) | st.permutations(range(16)) | st.permutations(range(1)))
def test_lower_and_earlier(sequence):
    sequence = np.array(sequence)
    expected = [
        sum(other < number for other in sequence[: list(sequence).index(number)]) for number in range(len(sequence))
    ]
    np.testing.assert_array_equal(lower_and_earlier(sequence, None), expected)
    weights = 2.0 ** -np.arange(len(sequence))
    np.testing.assert_array_equal(
        lower_and_earlier(sequence, weights),
        [sum(weights[o] for o in sequence[: list(sequence).index(n)] if o < n) for n in range(len(sequence))],
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("average", ["impressions", "uniform"])
def test_grouped_xauc_group_by_group(weighted, average):
    rng = np.random.default_rng(1)
    p, y = rng.integers(0, 9, (2, 800)).astype(np.float64)
    w = rng.random(800) + 0.01 if weighted else np.ones(800)
    groups = rng.zipf(1.6, 800) * (-1) ** rng.integers(0, 2, 800)
    total = shares = left_out = 0
    for group in set(groups):
        mine = groups == group
        if mine.sum() < 2:
            left_out += 1
            continue
        concordant, pairs = all_pairs(p[mine], y[mine], w[mine])
        share = w[mine].sum() if average == "impressions" else 1
        total, shares = total + share * concordant / pairs, shares + share
    metric = metrics.GroupedXAUC(average)
    state = metric.update(metric.init(), p, y, w if weighted else None, groups)
    assert left_out > 3
    assert metric.compute(state) == pytest.approx(total / shares, abs=1e-12)
    assert metric.details(state)["left_out_groups"] == left_out


def test_the_heaviest_row_does_not_hide_the_others():
    """Pairs of weight 1e8 x 1 and 1 x 1: the light ones still count, where W^2 - sum w^2 would round them away."""
    p, y, w = np.array([1.0, 2, 3]), np.array([1.0, 3, 2]), np.array([1e12, 1, 1])
    state = run(metrics.XAUC(), {"predictions": p, "labels": y, "weights": w})
    assert metrics.XAUC().details(state)["pairs"] == 2e12 + 1
    assert metrics.XAUC().compute(state) == 2e12 / (2e12 + 1)


def test_in_batch_compares_by_order_alone():
    """Differences whose product is 0 in float32 are still differences."""
    tiny = np.float32([1e-30, 2e-30, 3e-30])
    metric = metrics.XAUC(in_batch=True)
    assert metric.compute(run(metric, {"predictions": tiny, "labels": tiny})) == 1


def test_sampling_reaches_every_pair_alike_and_beyond_32_bits():
    """At 100 000 rows there are 5e9 pairs; a 32-bit index would go wrong here."""
    rng = np.random.default_rng(0)
    p = rng.permutation(100_000).astype(np.float32)
    y = np.where(rng.random(100_000) < 0.7, p, -p)
    exact = metrics.XAUC().compute(run(metrics.XAUC(), {"predictions": p, "labels": y}))
    metric = metrics.XAUC(max_pairs=1_500_000)
    sampled = metric.compute(run(metric, {"predictions": p, "labels": y}))
    assert abs(sampled - exact) < 4 * math.sqrt(exact * (1 - exact) / 1_500_000)
    few = metrics.XAUC(max_pairs=6000)
    p, y = np.array([1.0, 2, 3, 4]), np.array([1.0, 2, 4, 3])
    assert few.compute(run(few, {"predictions": p, "labels": y})) == pytest.approx(5 / 6, abs=0.02)


def test_options_that_exclude_each_other():
    with pytest.raises(ValueError, match="exclude each other; set one at most"):
        metrics.XAUC(in_batch=True, max_pairs=3)
    with pytest.raises(ValueError, match="sample_ratio must be a finite number above 0 and at most 1, got 2"):
        metrics.XAUC(sample_ratio=2)
    with pytest.raises(ValueError, match="max_pairs must be an integer of at least 1, got 0"):
        metrics.XAUC(max_pairs=0)
    with pytest.raises(ValueError, match=r"predictions have shape \(3, 2\); give one number per row"):
        run(metrics.XAUC(in_batch=True), {"predictions": np.ones((3, 2)), "labels": np.ones((3, 2))})


def test_groups_of_one_row_have_a_reason():
    metric = metrics.GroupedXAUC()
    state = metric.update(metric.init(), [1.0, 2.0], [1.0, 2.0], groups=[1, 2])
    assert metric.reason(state) == "GroupedXAUC: every group has one row only"
    one = run(metrics.XAUC(), {"predictions": [1.0], "labels": [1.0]})
    assert metrics.XAUC().reason(one) == "XAUC: fewer than two rows of positive weight, so there is no pair"
