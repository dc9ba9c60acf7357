"""Ranks among a whole catalog, against a plain statement of them."""

import numpy as np
import pytest

from sparrow import metrics
from sparrow.metrics import catalog


def plain_ranks(query, items, chosen, seen):
    ranks = []
    for row, own in enumerate(chosen):
        scores = items.astype(np.float64) @ query[row].astype(np.float64)
        others = [i for i in range(len(items)) if i != own and i not in seen[row]]
        ranks.append(1 + sum(scores[i] >= scores[own] for i in others))
    return ranks


def cases(rng, rows, count):
    query, items = rng.integers(-3, 4, (rows, 4)), rng.integers(-3, 4, (count, 4))  # exact, with many ties
    chosen = rng.integers(0, count, rows)
    seen = [rng.choice(count, rng.integers(0, min(count, 6)), replace=False).tolist() for _ in range(rows)]
    offsets = np.concatenate([[0], np.cumsum([len(s) for s in seen])])
    return query.astype(np.float32), items.astype(np.float32), chosen, seen, (offsets, np.concatenate(seen))


@pytest.mark.parametrize(("rows", "count"), [(1, 1), (7, 30), (20, 100)])
def test_ranks_are_those_of_a_plain_statement(monkeypatch, rows, count):
    monkeypatch.setattr(catalog, "ROWS", 8)
    monkeypatch.setattr(catalog, "ITEMS", 32)
    catalog._above.clear_cache()
    query, items, chosen, seen, given = cases(np.random.default_rng(rows), rows, count)
    found = metrics.catalog_ranks(query, items, chosen, given)
    assert found.tolist() == plain_ranks(query, items, chosen, seen)
    unseen = metrics.catalog_ranks(query, items, chosen)
    assert unseen.tolist() == plain_ranks(query, items, chosen, [[]] * rows)
    catalog._above.clear_cache()


def test_no_rows():
    assert metrics.catalog_ranks(np.zeros((0, 2)), np.ones((3, 2)), []).tolist() == []
    assert metrics.catalog_metrics([], []) == {}


def test_metrics_of_several_choices():
    found = metrics.catalog_metrics([1, 3, 11, 4], [0, 0, 1, 2], top_k=[3, 10])
    assert found["recall@3"] == pytest.approx((1 + 0 + 0) / 3)
    assert found["recall@10"] == pytest.approx((1 + 0 + 1) / 3)
    assert found["hr@10"] == pytest.approx(2 / 3)
    ideal = 1 + 1 / np.log2(3)
    assert found["ndcg@3"] == pytest.approx(((1 + 1 / np.log2(4)) / ideal + 0 + 0) / 3)
    assert found["mrr"] == pytest.approx((1 + 1 / 11 + 1 / 4) / 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.ones((2, 3)), np.ones((4, 2)), [0, 1]), "dim"),
        ((np.ones((2, 2)), np.ones((4, 2)), [0, 4]), "below the 4 items"),
        ((np.ones((2, 2)), np.ones((4, 2)), [0]), "one number per row"),
        ((np.ones((1, 2)), np.ones((4, 2)), [0], ([0, 1], [9])), "seen items must be below"),
        ((np.ones((1, 2)), np.ones((4, 2)), [0], ([0, 2], [1])), "offsets of 2"),
    ],
)
def test_bad_input(arguments, words):
    with pytest.raises(ValueError, match=words):
        metrics.catalog_ranks(*arguments)


def test_ndcg_is_at_most_one_where_items_of_a_user_share_a_rank():
    shared = catalog.catalog_metrics([1, 1, 1, 2], ["ann", "ann", "bob", "bob"], top_k=[1, 10])
    assert shared["ndcg@10"] == shared["ndcg@1"] == 1.0
    assert shared["recall@1"] == 0.75
