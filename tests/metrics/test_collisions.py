"""Collisions of codes, counted over all rows."""

import numpy as np
import pytest

from sparrow import metrics

CODES = np.random.default_rng(0).integers(0, 5, (200, 3))


def plain(codes):
    rows = [tuple(row) for row in codes.tolist()]
    return sum(rows.count(row) > 1 for row in rows) / len(rows)


def test_batches_and_merging_change_nothing():
    metric = metrics.Collisions()
    parts = [metric.update(metric.init(), CODES[a:b].astype(np.int32)) for a, b in ((0, 50), (50, 51), (51, 200))]
    state = metric.merge(metric.merge(parts[2], parts[0]), parts[1])
    assert metric.compute(state) == pytest.approx(plain(CODES), abs=1e-12)
    assert metric.details(state) == {
        "rows": 200,
        "distinct": len(np.unique(CODES, axis=0)),
        "most": np.unique(CODES, axis=0, return_counts=True)[1].max(),
    }


def test_rows_of_weight_0_are_absent():
    metric = metrics.Collisions()
    there = np.arange(200) % 2
    state = metric.update(metric.init(), CODES, weights=there)
    assert metric.compute(state) == pytest.approx(plain(CODES[there > 0]), abs=1e-12)
    assert "no rows" in metric.reason(metric.init())


@pytest.mark.parametrize("codes", [[[0.5, 1.0]], [[-1, 2]], [[2**32, 1]]])
def test_other_numbers_are_refused(codes):
    metric = metrics.Collisions()
    with pytest.raises(ValueError, match=r"must be codes, .* integers from 0 to 2"):
        metric.update(metric.init(), codes)
