"""Counts of items: exact over many chunks, kept and restored."""

import numpy as np
import pytest

from sparrow.data import DataError, ItemCounts, Tables


def test_counts_are_exact_over_chunks(monkeypatch):
    monkeypatch.setattr("sparrow.data.counting._MERGE_ROWS", 50)
    items = np.random.default_rng(0).integers(0, 40, 1000)
    counts = ItemCounts(Tables({"item": items}, chunk_rows=30), "item")
    keys, rows = counts.counted
    expected = np.bincount(items, minlength=40)
    assert keys.tolist() == np.flatnonzero(expected).tolist()
    assert rows.tolist() == expected[expected > 0].tolist()
    other = ItemCounts(Tables({"item": [1]}), "item")
    other.restore(counts.state())
    np.testing.assert_array_equal(other.log_q(items), counts.log_q(items))
    other.restore({})
    assert other.counted[0].tolist() == [1]


def test_a_column_that_is_not_there():
    with pytest.raises(DataError, match="there is no such column"):
        _ = ItemCounts(Tables({"item": [1]}), "itm").counted
