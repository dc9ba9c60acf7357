"""Exact areas against scikit-learn, and grouped ones against scikit-learn group by group."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import average_precision_score, roc_auc_score

from sparrow import metrics
from sparrow.metrics import grouped
from sparrow.metrics.exact import ScoreCounts, roc_areas
from tests.metrics.cases import run

AUC, PRAUC = metrics.ExactAUC(), metrics.ExactPRAUC()
quick = settings(max_examples=50, deadline=None, derandomize=True)


def compute(metric, p, y, w=None, groups=None):
    return metric.compute(metric.update(metric.init(), p, y, w, groups))


def rows(kind, size, rng):
    """Scores of one kind, with labels that they predict a little."""
    if kind == "ties":
        p = rng.integers(0, 4, size).astype(np.float32)
    elif kind == "float64":
        p = 1.0 + rng.random(size) * 1e-12  # all alike in float32
    elif kind == "extreme":
        p = rng.choice([-np.inf, -1e38, -1e-45, -0.0, 0.0, 1e-45, 1.0, np.inf], size).astype(np.float32)
    else:
        p = rng.normal(size=size).astype(np.float32)
    y = rng.random(size) < 0.2 + 0.5 * (np.argsort(np.argsort(p)) / size)
    y[:2] = [True, False]
    return p, y


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["random", "ties", "float64"])
def test_scikit_learn_agrees(kind, weighted):
    rng = np.random.default_rng(3)
    for size in (2, 3, 10, 1000, 20_000):
        p, y = rows(kind, size, rng)
        w = rng.random(size) * (rng.random(size) > 0.1) + 1e-3 if weighted else None
        assert compute(AUC, p, y, w) == pytest.approx(roc_auc_score(y, p, sample_weight=w), abs=1e-12)
        assert compute(PRAUC, p, y, w) == pytest.approx(average_precision_score(y, p, sample_weight=w), abs=1e-12)


def test_infinities_zeros_and_the_smallest_numbers_are_ordered():
    p, y = rows("extreme", 500, np.random.default_rng(0))
    ranks = np.unique(p, return_inverse=True)[1]  # -0.0 and 0.0 are equal
    assert compute(AUC, p, y) == pytest.approx(roc_auc_score(y, ranks), abs=1e-12)


def test_counts_of_many_rows_are_exact():
    """2**30 negative rows tied with 2 of 3 positive ones, and one more below: float32 would miss it."""
    many = 2**30
    counts = ScoreCounts(np.array([0, 2, 1]), np.array([1, many, 0]), np.array([0]))
    expected = (2 * (1 + many / 2) + (many + 1)) / (3 * (many + 1))
    assert roc_areas(counts).area[0] == pytest.approx(expected, abs=1e-15)


scores = arrays(np.float32, st.integers(2, 40), elements=st.sampled_from([-3.0, -0.5, 0.0, 0.25, 1.0, 7.0]))


@quick
@given(scores, st.randoms(use_true_random=False))
def test_only_the_order_of_scores_matters(p, random):
    y = np.array([random.random() < 0.5 for _ in p])
    w = np.array([random.choice([0.0, 0.5, 1.0, 2.0]) for _ in p])
    expected = compute(AUC, p, y, w)
    for transform in (np.exp, np.arctan, lambda p: 3 * p - 7, lambda p: p.astype(np.float64) ** 3):
        assert compute(AUC, transform(p), y, w) == pytest.approx(expected, abs=1e-14, nan_ok=True)
    # The other way round, positives below negatives become positives above.
    assert compute(AUC, -p, y, w) == pytest.approx(1 - expected, abs=1e-14, nan_ok=True)


@quick
@given(scores, st.randoms(use_true_random=False))
def test_order_batches_and_copies_do_not_matter(p, random):
    y = np.array([random.random() < 0.5 for _ in p])
    groups = np.array([random.choice(["a", "b", "c"]) for _ in p])
    copies = np.array([random.randint(0, 3) for _ in p])
    cut, shuffled = random.randint(0, len(p)), np.array(random.sample(range(len(p)), len(p)))
    grouped = {"predictions": p, "labels": y, "weights": copies, "groups": groups}
    for metric in (AUC, PRAUC, metrics.GroupedAUC("impressions"), metrics.GroupedXAUC(), metrics.XAUC()):
        batch = {key: value for key, value in grouped.items() if key != "groups" or metric.needs_groups}
        whole = run(metric, batch)
        parts = [{key: v[shuffled][piece] for key, v in batch.items()} for piece in (slice(cut), slice(cut, None))]
        a, b = (run(metric, part) for part in parts)
        expected = metric.compute(whole)
        assert metric.compute(run(metric, *parts)) == pytest.approx(expected, abs=1e-14, nan_ok=True)
        assert metric.compute(metric.merge(b, a)) == pytest.approx(expected, abs=1e-14, nan_ok=True)
        if "XAUC" not in metric.name:
            repeated = {key: np.repeat(v, copies) for key, v in batch.items() if key != "weights"}
            assert metric.compute(run(metric, repeated)) == pytest.approx(expected, abs=1e-14, nan_ok=True)


def by_hand(p, y, w, groups, average):
    """The definition, one group at a time."""
    total = shares = 0.0
    used = left_out = 0
    for group in set(groups):
        mine = groups == group
        if len(set(y[mine])) < 2:
            left_out += 1
            continue
        share = {"uniform": 1, "impressions": w[mine].sum(), "clicks": (w * y)[mine].sum()}[average]
        total += share * roc_auc_score(y[mine], p[mine], sample_weight=w[mine])
        shares, used = shares + share, used + 1
    return total / shares, {"groups": used, "left_out_groups": left_out}


@pytest.mark.parametrize("average", ["uniform", "impressions", "clicks"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["random", "ties", "float64"])
def test_grouped_auc_group_by_group(kind, weighted, average):
    rng = np.random.default_rng(5)
    p, y = rows(kind, 800, rng)
    w = rng.random(800) + 0.1 if weighted else np.ones(800)
    # Sizes from 1 to hundreds; keys far apart, near zero, and negative.
    groups = np.array([-(2**62), -1, 0, 5, 2**62, *range(100, 160)])[rng.zipf(1.5, 800) % 65]
    metric = metrics.GroupedAUC(average)
    state = metric.update(metric.init(), p, y, w if weighted else None, groups)
    value, details = by_hand(p, y, w, groups, average)
    assert metric.compute(state) == pytest.approx(value, abs=1e-12)
    assert metric.details(state) == details


def test_groups_may_be_anything_hashable():
    rng = np.random.default_rng(2)
    p, y = rows("random", 400, rng)
    names = ["", "a", b"a", 1, 2**63, 2**70, -5, 2.5, None, ("a", 1), ("a", (1, 2)), frozenset("xy")]
    which = rng.integers(0, len(names), 400)
    expected = pytest.approx(compute(metrics.GroupedAUC(), p, y, groups=which), abs=1e-14)
    as_list = [names[index] for index in which]
    assert compute(metrics.GroupedAUC(), p, y, groups=as_list) == expected
    assert compute(metrics.GroupedAUC(), p, y, groups=np.fromiter(as_list, object)) == expected
    for width in ("U5", "S5"):
        assert compute(metrics.GroupedAUC(), p, y, groups=which.astype(width)) == expected
    assert compute(metrics.GroupedAUC(), p, y, groups=which.astype(np.uint64) + np.uint64(2**63)) == expected


def test_weights_may_come_and_go_between_batches():
    rng = np.random.default_rng(4)
    p, y = rows("ties", 60, rng)
    groups = rng.integers(0, 4, 60)
    metric = metrics.GroupedAUC()
    mixed = metric.update(metric.init(), p[:20], y[:20], None, groups[:20])
    mixed = metric.update(mixed, p[20:], y[20:], np.full(40, 2.0), [f"{g}" if g == 0 else int(g) for g in groups[20:]])
    keys = np.where((groups == 0) & (np.arange(60) >= 20), 99, groups)
    weights = np.where(np.arange(60) < 20, 1.0, 2.0)
    assert metric.compute(mixed) == pytest.approx(by_hand(p, y, weights, keys, "uniform")[0], abs=1e-12)


def test_small_groups_do_not_drown_among_large_ones():
    """A group of weights 1e-9 beside one of 1e9: its area is as exact as if it were alone."""
    rng = np.random.default_rng(6)
    p, y = rows("random", 2000, rng)
    groups = np.arange(2000) % 2
    w = (rng.random(2000) + 0.1) * np.where(groups, 1e-9, 1e9)  # the large one is summed first
    expected = by_hand(p, y, w, groups, "uniform")[0]
    assert compute(metrics.GroupedAUC(), p, y, w, groups) == pytest.approx(expected, abs=1e-13)
    small = groups == 1
    alone = compute(metrics.XAUC(), p[small], p[small] + y[small], w[small])
    pair = [
        compute(metrics.GroupedXAUC("uniform"), p[rows], (p + y)[rows], w[rows], groups[rows])
        for rows in (small, ~small)
    ]
    both = compute(metrics.GroupedXAUC("uniform"), p, p + y, w, groups)
    assert pair[0] == pytest.approx(alone, abs=1e-13)
    assert both == pytest.approx(sum(pair) / 2, abs=1e-13)


def test_one_class_or_a_wrong_label_has_a_reason():
    for metric in (AUC, PRAUC):
        state = metric.update(metric.init(), [0.1, 0.2], [0, 0])
        assert math.isnan(metric.compute(state))
        assert metric.reason(state) == f"{metric.name}: no positive labels"
    assert AUC.reason(AUC.update(AUC.init(), [0.1, 0.2], [1, 1])) == "ExactAUC: no negative labels"
    assert PRAUC.compute(PRAUC.update(PRAUC.init(), [0.1, 0.2], [1, 1])) == 1
    wrong = AUC.update(AUC.init(), [0.1, 0.2, 0.3], [0, 1, 2])
    assert AUC.reason(wrong).startswith("ExactAUC: 1 labels are not 0 or 1. Give weight 0")


def test_an_unknown_average_is_refused():
    with pytest.raises(ValueError, match=r"GroupedAUC\.average must be one of 'uniform', .*, got 'size'"):
        metrics.GroupedAUC("size")


@pytest.mark.parametrize("weighted", [False, True])
def test_groups_in_parts_are_the_groups_of_all_rows(monkeypatch, weighted):
    rng = np.random.default_rng(3)
    p, y = rows("ties", 4000, rng)
    w = rng.random(4000).astype(np.float32) if weighted else None
    groups = rng.integers(-50, 50, 4000)
    metric = metrics.GroupedAUC(average="impressions")
    state = metric.update(metric.init(), p, y, w, groups)
    whole = metric.evaluate(state)
    monkeypatch.setattr(grouped, "LARGE", 100)
    parts = metric.evaluate(state)
    assert parts.value == pytest.approx(whole.value, rel=1e-12)
    assert parts.details == whole.details
    assert metric.evaluate(state).value == parts.value
