"""Ranking metrics against their definitions, list by list, and scikit-learn; in a matrix and as flat rows."""

import math

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from sparrow import metrics
from tests.metrics.cases import run

pytestmark = pytest.mark.usefixtures("quick_compiler")
LISTS, CANDIDATES, K = 30, 8, 3


def ranked(scores, relevance):
    """Relevance from the first rank down: ties in score go to the less relevant."""
    return relevance[np.lexsort((relevance, -scores))]


def recall(r, w):
    return (r[:K] > 0).sum() / (r > 0).sum(), w * (r > 0).sum()


def hit_rate(r, w):
    return (r[:K] > 0).any(), w


def ndcg(r, w):
    discount = 1 / np.log2(np.arange(2, K + 2))
    ideal = np.sort(r)[::-1]
    return ((2 ** r[:K] - 1) @ discount) / ((2 ** ideal[:K] - 1) @ discount), w


def mrr(r, w):
    return 1 / (1 + np.argmax(r > 0)), w


def average_precision(r, w):
    precisions = [(r[: i + 1] > 0).mean() for i in range(K) if r[i] > 0]
    return sum(precisions) / min(K, (r > 0).sum()), w


DEFINITIONS = {
    metrics.RecallAtK(K): recall,
    metrics.RecallAtK(K, average="macro"): lambda r, w: (recall(r, w)[0], w),
    metrics.HitRateAtK(K): hit_rate,
    metrics.NDCGAtK(K): ndcg,
    metrics.MRR(): mrr,
    metrics.MRR(top_k=K): lambda r, w: (mrr(r, w)[0] if (r[:K] > 0).any() else 0, w),
    metrics.MAPAtK(K): average_precision,
}
EVERY = pytest.mark.parametrize("metric", DEFINITIONS, ids=repr)


@pytest.fixture(params=["ties", "no ties"])
def lists(request):
    rng = np.random.default_rng(4)
    levels = 4 if request.param == "ties" else 10**6
    scores = rng.integers(0, levels, (LISTS, CANDIDATES)).astype(np.float32)
    relevance = (rng.integers(0, 4, scores.shape) * (rng.random(scores.shape) < 0.3)).astype(np.float32)
    relevance[0] = 0
    return scores, relevance, rng.integers(1, 5, LISTS).astype(np.float32)


def by_hand(metric, scores, relevance, weights):
    terms = [
        DEFINITIONS[metric](ranked(s, r), w)
        for s, r, w in zip(scores, relevance, weights, strict=True)
        if (r > 0).any()
    ]
    values, shares = np.array(terms, np.float64).T
    return values @ shares / shares.sum()


@EVERY
def test_definition(metric, lists):
    scores, relevance, weights = lists
    state = metric.update(metric.init(), scores, relevance, weights)
    assert metric.compute(state) == pytest.approx(by_hand(metric, *lists), rel=1e-6)
    assert metric.details(state) == {"left_out_lists": (relevance == 0).all(axis=1).sum()}


@EVERY
def test_flat_rows_are_the_same_lists(metric, lists):
    scores, relevance, weights = lists
    groups = np.repeat(np.arange(LISTS), CANDIDATES)
    shuffled = np.random.default_rng(0).permutation(groups.size)
    columns = scores.reshape(-1), relevance.reshape(-1), np.repeat(weights, CANDIDATES), groups
    flat = metrics.ByGroup(metric)
    state = flat.update(flat.init(), *(column[shuffled] for column in columns))
    assert flat.compute(state) == pytest.approx(by_hand(metric, *lists), rel=1e-12)
    assert flat.details(state)["left_out_groups"] == (relevance == 0).all(axis=1).sum()


@EVERY
def test_the_order_of_columns_does_not_matter(metric, lists):
    scores, relevance, weights = lists
    moved = np.random.default_rng(0).permutation(CANDIDATES)
    permuted = metric.update(metric.init(), scores[:, moved], relevance[:, moved], weights)
    assert metric.compute(permuted) == pytest.approx(by_hand(metric, *lists), rel=1e-6)


@pytest.mark.parametrize("metric", [metrics.NDCGAtK(K), metrics.MAPAtK(K)], ids=repr)
def test_padding_does_not_matter(metric, lists):
    scores, relevance, weights = lists
    padded = [np.pad(scores, ((0, 0), (0, 2)), constant_values=-np.inf), np.pad(relevance, ((0, 0), (0, 2)))]
    state = metric.update(metric.init(), *padded, weights)
    assert metric.compute(state) == pytest.approx(by_hand(metric, *lists), rel=1e-6)


def test_scikit_learn_agrees_on_ndcg():
    rng = np.random.default_rng(1)
    scores, relevance = rng.random((20, 9)).astype(np.float32), rng.integers(0, 4, (20, 9))
    metric = metrics.NDCGAtK(top_k=5, gain="linear")
    got = metric.compute(run(metric, {"predictions": scores, "labels": relevance}))
    assert got == pytest.approx(ndcg_score(relevance, scores, k=5), rel=1e-6)


def test_a_model_that_scores_all_alike_gets_no_credit_for_the_layout():
    """With the relevant candidate in column 0, a stable sort would find it at once."""
    batch = {"predictions": np.zeros((4, 6), np.float32), "labels": np.zeros(4, int)}
    assert metrics.RecallAtK(5).compute(run(metrics.RecallAtK(5), batch)) == 0
    assert metrics.MRR().compute(run(metrics.MRR(), batch)) == pytest.approx(1 / 6)


def test_the_index_of_the_relevant_candidate():
    scores = np.array([[0.1, 0.9], [0.8, 0.2]], np.float32)
    metric = metrics.HitRateAtK(1)
    assert metric.compute(metric.update(metric.init(), scores, [1, 1])) == 0.5
    wrong = metric.update(metric.init(), scores, [1, 2])
    assert math.isnan(metric.compute(wrong))
    assert "1 labels are not" in metric.reason(wrong)


def test_nothing_relevant_has_a_reason():
    metric = metrics.NDCGAtK()
    state = metric.update(metric.init(), np.ones((2, 3)), np.zeros((2, 3)))
    assert metric.reason(state) == "NDCGAtK: no list has a relevant candidate"
    flat = metrics.ByGroup(metric)
    state = flat.update(flat.init(), [1.0, 2.0], [0, 0], groups=["a", "b"])
    assert flat.reason(state) == "ByGroup(NDCGAtK): every group is without a relevant row"


def test_mistakes_are_named():
    with pytest.raises(
        ValueError, match=r"MRR.update: predictions have shape \(3,\); give \(lists, candidates\), or use ByGroup"
    ):
        metrics.MRR().update(metrics.MRR().init(), np.ones(3), np.ones(3))
    with pytest.raises(ValueError, match=r"NDCGAtK.top_k must be an integer of at least 1, got 0"):
        metrics.NDCGAtK(0)
    with pytest.raises(ValueError, match=r"ByGroup: metric must be a ranking metric, .* got AUC"):
        metrics.ByGroup(metrics.AUC())
    with pytest.raises(ValueError, match=r"gain must be one of 'exponential', 'linear', got 'log'"):
        metrics.NDCGAtK(gain="log")


@pytest.mark.parametrize(
    "metric",
    [
        metrics.RecallAtK(top_k=3),
        metrics.HitRateAtK(top_k=1),
        metrics.NDCGAtK(top_k=4),
        metrics.MRR(),
        metrics.MRR(top_k=2),
        metrics.MAPAtK(),
    ],
)
def test_one_relevant_candidate_is_ranked_by_counting_as_by_sorting(metric):
    scores = np.random.default_rng(0).integers(0, 4, (64, 9)).astype(np.float32)  # many ties
    scores[::5, 3] = -np.inf
    chosen = np.arange(64) % 9
    counted = metric.compute(metric.update(metric.init(), scores, chosen))
    ranked = metric.compute(metric.update(metric.init(), scores, np.eye(9)[chosen]))
    assert counted == ranked
    assert 0 < counted < 1


@pytest.mark.parametrize("label", [-1, 3, 0.5, np.nan])
def test_a_label_that_is_no_index_is_at_fault(label):
    metric = metrics.MRR()
    state = metric.update(metric.init(), [[0.1, 0.2, 0.3]], [float(label)])
    assert np.isnan(metric.compute(state))
