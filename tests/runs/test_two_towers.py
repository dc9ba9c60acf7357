"""Two towers from a config: corrected for the frequency of items, copies masked, by default, and resumed to the bit."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config as configs
from sparrow import runs
from sparrow.runs.loop.candidates import candidate_columns
from sparrow.tasks import POSITIVE_IDS, POSITIVE_LOG_Q, USERS
from tests.runs.test_training import assert_same_bits

USERS_, ITEMS_ = 20, 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("towers")
    rng = np.random.default_rng(0)
    for name, count in (("train", 512), ("test", 64)):
        user = rng.integers(0, USERS_, count)
        item = np.where(rng.random(count) < 0.5, 0, (user + rng.integers(0, 3, count)) % ITEMS_)  # item 0 is popular
        columns = {"user": user, "item": item, "kind": item % 2, "label": np.ones(count, np.float32)}
        pq.write_table(pa.table(columns), made / f"{name}.parquet", row_group_size=200)
    return made


def towers(folder, *overrides):
    id_feature = {"kind": "id", "embedding_dim": 4}
    described = {
        "train": {
            "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.5},
            "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.01},
            "batch_size": 32,
            "steps": 6,
            "log_every_steps": 6,
        },
        "data": {
            "train": {"name": "parquet", "path": f"{folder}/train.parquet"},
            "evaluate": {"name": "parquet", "path": f"{folder}/test.parquet"},
            "shuffle_rows": 512,
            "user_column": "user",
            "features": [
                {**id_feature, "name": "user", "num_buckets": USERS_},
                {**id_feature, "name": "kind", "num_buckets": 2},
                {**id_feature, "name": "item", "num_buckets": ITEMS_},
            ],
        },
        "model": {
            "architecture": {
                "name": "dssm",
                "user_tower": {"input": "users"},
                "item_tower": {"input": "items"},
                "output_dim": 4,
            },
            "groups": {"users": ["user"], "items": ["kind", "item"]},
        },
        "tasks": {"match": {"label": "label", "losses": ["in_batch_softmax"]}},
    }
    return configs.from_mapping(described, overrides=overrides)


def test_the_batch_carries_frequencies_and_ids(folder):
    config = towers(folder)
    counts, assembly = configs.item_counts(config), configs.assemble(config)
    batch = next(iter(configs.train_pipeline(config)))
    columns = candidate_columns(batch, assembly, counts)
    rows = pq.read_table(folder / "train.parquet")["item"].to_numpy()
    share = np.bincount(rows, minlength=ITEMS_) / len(rows)
    np.testing.assert_allclose(np.exp(columns[POSITIVE_LOG_Q]), share[batch.keys["item"]], rtol=1e-6)
    for name, key in ((POSITIVE_IDS, "item"), (USERS, "user")):
        same = batch.keys[key][:, None] == batch.keys[key]
        assert ((columns[name][:, None] == columns[name]) == same).all()


def test_a_run_is_corrected_resumes_to_the_bit_and_evaluates_alike_later(folder, tmp_path):
    log = io.StringIO()
    whole = runs.train(towers(folder), tmp_path / "whole", stream=log)
    assert "log-Q correction by the counts of 'item' (12 items in 512 rows)" in log.getvalue()
    assert "copies of the chosen 'item' and further items of its 'user' in the batch are no negatives" in log.getvalue()
    runs.train(towers(folder, "train.steps=3"), tmp_path / "part", stream=io.StringIO())
    resumed = runs.train(towers(folder), tmp_path / "part", resume=True, stream=io.StringIO())
    assert_same_bits(whole.state, resumed.state)
    (folder / "train.parquet").rename(folder / "gone.parquet")  # the counts are the run's own
    try:
        assert runs.load(tmp_path / "whole").evaluate()["loss"] == whole.results["loss"]
    finally:
        (folder / "gone.parquet").rename(folder / "train.parquet")


def test_the_correction_can_be_switched_off(folder):
    off = towers(folder, "tasks.match.losses=[{name: in_batch_softmax, log_q: false}]")
    assert configs.item_counts(off) is None
    log = io.StringIO()
    plain = runs.train(off, stream=log)
    assert "no log-Q correction (log_q is false)" in log.getvalue()
    assert plain.results["loss"] != runs.train(towers(folder), stream=io.StringIO()).results["loss"]


def test_the_column_of_the_item(folder, tmp_path):
    assert configs.item_column(towers(folder)) == "item"  # the table with the most rows
    assert configs.item_column(towers(folder, "data.item_column=kind")) == "kind"
    lists = pa.table({"user": [1, 2], "kind": [0, 1], "item": [[1], [2, 3]], "label": [1.0, 1.0]})
    pq.write_table(lists, tmp_path / "lists.parquet")
    config = towers(folder, f"data.train.path={tmp_path}/lists.parquet")
    assert configs.item_counts(config) is None  # a guess that does not fit the data is dropped
    assert next(iter(configs.train_pipeline(config))).keys.keys() == {"user"}
