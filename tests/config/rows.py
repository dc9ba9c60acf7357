"""Comparing files of predictions."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq


def same_predictions(trained, served):
    """Check that an exported model predicts, for the same rows, the numbers of the checkpoint that it was made from."""
    expected, found = (pq.read_table(path).to_pydict() for path in (trained, served))
    both = expected.keys() & found.keys()
    assert len(both) == len(expected)
    for name in both:
        one, other = (_flat(column[name]) for column in (found, expected))
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6, err_msg=name)


def _flat(column):
    """Return a column of predictions; of lists of several lengths, their numbers."""
    lengths = {len(row) for row in column if isinstance(row, list)}
    return column if len(lengths) < 2 else [number for row in column for number in row]
