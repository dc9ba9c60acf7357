"""The benchmark of histories: it counts bytes correctly, and runs."""

import numpy as np

from benchmarks import histories


def test_bytes_of_a_step():
    # Three lookups and their gradients of 8 numbers, read and written; two rows of 8 numbers and an accumulator.
    expected = 4 * (3 * 3 * 8 + 2 * 2 * 9)
    assert histories.bytes_of({"items": [np.array([3, 3]), np.array([4])]}, dim=8) == expected


def test_histories_add_their_bytes_and_change_only_their_tables():
    size = histories.Size(batch=4, rows=50, dim=4, length=5)
    plain, ordered = histories.measure(size, rounds=1, steps=1)
    assert ordered.bytes > plain.bytes
    assert len(plain.samples) == len(ordered.samples) == 1

    def table(work, name):
        return np.asarray(work.embedder.table(work.state, name))

    np.testing.assert_array_equal(table(plain, "table25"), table(ordered, "table25"))
    assert (table(plain, "table0") != table(ordered, "table0")).any()
