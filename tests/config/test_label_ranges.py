"""Labels that a loss cannot work with are refused where they are read, with their row and value."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config as configs
from sparrow.data import DataError
from tests.runs.cases import BASE

JRC = {"name": "jrc", "session_name": "session"}


def first_batch(tmp_path, labels, *, losses=("binary_cross_entropy",), classes=1, task=None, **columns):
    path = tmp_path / "rows.parquet"
    session = np.zeros(len(labels), np.int64)
    pq.write_table(pa.table({"label": labels, "item": np.arange(len(labels)), "session": session, **columns}), path)
    settings = {
        **BASE,
        "tasks": {"click": {"label": "label", "losses": list(losses), **(task or {})}},
        "data": {
            "train": {"name": "parquet", "path": str(path)},
            "features": [{"kind": "id", "name": "item", "num_buckets": 100, "embedding_dim": 4}],
        },
        "model": {
            "architecture": {"name": "multi_tower", "towers": [{"input": "all"}], "num_classes": classes},
            "groups": {"all": ["item"]},
        },
    }
    return next(iter(configs.train_pipeline(configs.from_mapping(settings))))


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (
            [0.0, 1.0, 2.0],
            {},
            "row 2, column 'label': binary_cross_entropy of the task 'click' takes numbers from 0 to 1",
        ),
        ([0, -1, 1], {}, "row 1, column 'label': .* as labels, got -1"),
        ([0, 1.5], {"losses": ["binary_focal"]}, "row 1, .*binary_focal .* got 1.5"),
        ([0, 2], {"losses": [JRC]}, "row 1, .*jrc .* takes integers from 0 to 1 as labels, got 2"),
        (
            [0, 2, 3],
            {"losses": ["softmax_cross_entropy"], "classes": 3},
            "row 2, .*softmax_cross_entropy .* takes integers from 0 to 2 as labels, got 3",
        ),
        ([0, 0.5], {"losses": ["softmax_cross_entropy"], "classes": 3}, "row 1, .* got 0.5"),
        (["1", "-1"], {}, "row 1, .* got -1"),
    ],
)
def test_labels_out_of_range(tmp_path, labels, options, message):
    with pytest.raises(DataError, match=message):
        first_batch(tmp_path, labels, **options)


@pytest.mark.parametrize(
    ("labels", "options"),
    [
        ([0, 1, 0.25], {}),
        ([0, 1, 2], {"losses": ["softmax_cross_entropy"], "classes": 3}),
        ([-3.0, 7.5], {"losses": ["l2"]}),
        ([0, -1], {"task": {"sample_weight": "w"}, "w": [1.0, 0.0]}),
        ([0, -1], {"task": {"task_space_label": "w", "out_task_space_weight": 0.0}, "w": [1.0, 0.0]}),
    ],
)
def test_labels_that_are_fine(tmp_path, labels, options):
    batch = first_batch(tmp_path, labels, **options)
    assert batch.labels["label"].tolist() == labels


def test_rows_out_of_the_space_that_count_are_checked(tmp_path):
    with pytest.raises(DataError, match=r"row 1, .* got -1"):
        first_batch(tmp_path, [0, -1], task={"task_space_label": "w", "out_task_space_weight": 0.5}, w=[1.0, 0.0])


def test_a_missing_label_is_missing(tmp_path):
    with pytest.raises(DataError, match="row 1, column 'label': label 'label' has no value; remove the row"):
        first_batch(tmp_path, [0.0, None, 3.0])
