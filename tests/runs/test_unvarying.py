"""Columns from which nothing can be learned get a warning, once."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import runs
from sparrow.data import Batch
from sparrow.embedding import Ragged
from sparrow.feed import unvarying
from tests.runs.cases import case


def warned(tmp_path, rows, *overrides, **columns):
    rng = np.random.default_rng(0)
    held = {"label": rng.integers(0, 2, rows), "item": rng.integers(0, 9, rows), "price": rng.normal(size=rows)}
    pq.write_table(pa.table({**held, **columns}), tmp_path / "rows.parquet")
    features = [
        {"kind": "id", "name": "item", "num_buckets": 9, "embedding_dim": 2},
        {"kind": "raw", "name": "price", "mean": 1.0},
    ]
    config = case(
        "train.batch_size=8",
        "train.steps=6",
        *overrides,
        data={"train": {"name": "parquet", "path": str(tmp_path / "rows.parquet")}, "features": features},
        model={
            "architecture": {"name": "multi_tower", "towers": [{"input": "all"}]},
            "groups": {"all": ["item", "price"]},
        },
        tasks={"click": {"label": "label", "losses": ["binary_cross_entropy"]}},
    )
    stream = io.StringIO()
    runs.train(config, stream=stream)
    return [line for line in stream.getvalue().splitlines() if "warning" in line]


@pytest.mark.parametrize("value", [None, float("nan"), 4.0])
def test_an_empty_column_is_named(tmp_path, value):
    (line,) = warned(tmp_path, 48, price=pa.array([value] * 48, pa.float64()))
    shown = 3 if value == 4.0 else -1
    assert f"warning: feature 'price' is {shown} in every row so far: the column is null, NaN or one number" in line


def test_it_is_said_once_and_early(tmp_path, monkeypatch):
    monkeypatch.setattr(unvarying, "ENOUGH", 16)
    lines = warned(tmp_path, 48, item=pa.array([None] * 48, pa.int64()), label=np.zeros(48))
    assert [line.split(":")[1] for line in lines] == [
        " feature 'item' is without an id in every row so far",
        " label 'label' is 0 in every row so far",
    ]


def test_columns_that_vary_are_fine(tmp_path):
    assert warned(tmp_path, 48) == []


def test_late_values_count():
    watch = unvarying.Unvarying()
    watch.add(Batch(ids={"seen": Ragged([], [0, 0]), "item": np.array([-1])}, numbers={"x": np.zeros((1, 2))}))
    watch.add(Batch(ids={"seen": Ragged([3], [0, 1]), "item": np.array([4])}, numbers={"x": np.array([[0.0, 1.0]])}))
    watch.add(Batch(ids={"seen": Ragged([], [0, 0]), "item": np.array([-1])}, numbers={"x": np.zeros((1, 2))}))
    assert watch.warnings() == []
