"""Integers of thousands of values: ids that are numbered, and numbers."""

import numpy as np
import pyarrow as pa
import pytest

from sparrow.data import IdFeature, RawFeature
from sparrow.frames.columns import read_column

RNG = np.random.default_rng(0)
ROWS = 40_000
POPULAR = RNG.permutation(1 / (np.arange(4_000) + 5.0))
COLUMNS = {
    "items of a shop": RNG.choice(4_000, ROWS, p=POPULAR / POPULAR.sum()),
    "items from 957 on": 957 + RNG.choice(4_000, ROWS, p=POPULAR / POPULAR.sum()),
    "distances": RNG.poisson(RNG.gamma(4, 500, ROWS)),
    "evenly spread": RNG.integers(0, 4_000, ROWS),
    "rounded": np.where(RNG.random(ROWS) < 0.5, RNG.integers(0, 400, ROWS) * 10, RNG.integers(0, 4_000, ROWS)),
    "with gaps": RNG.choice(4_000, ROWS, p=POPULAR / POPULAR.sum()) ** 2,
    "rare": RNG.choice(4_000, 8_000, p=POPULAR / POPULAR.sum()),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_ids_are_told_from_numbers(name):
    feature = read_column("f7", pa.array(COLUMNS[name])).feature
    assert isinstance(feature, IdFeature if name.startswith("items") else RawFeature)
