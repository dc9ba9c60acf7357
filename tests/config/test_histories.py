"""A config of SASRec on a plain log: histories, every position, ranks among all items."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config, runs

ITEMS = 12


@pytest.fixture
def mapping(tmp_path):
    """Each item is followed by the one three numbers on."""
    rng = np.random.default_rng(0)
    starts = rng.integers(0, ITEMS, 120)
    items = (starts[:, None] + 3 * np.arange(9)) % ITEMS
    events = {"user": np.repeat(np.arange(120), 9), "item": items.reshape(-1), "time": np.tile(np.arange(9), 120)}
    order = rng.permutation(items.size)
    pq.write_table(pa.table({name: values[order] for name, values in events.items()}), tmp_path / "log.parquet")
    of_item = {"num_buckets": ITEMS, "embedding_dim": 8, "table": "items"}
    return {
        "data": {
            "train": {"name": "parquet", "path": str(tmp_path / "log.parquet")},
            "user_column": "user",
            "item_column": "item",
            "histories": {"time_column": "time"},
            "negatives": {"group": "item", "id_column": "item", "count": "all"},
            "features": [
                {"kind": "id", "name": "item", **of_item},
                {"kind": "sequence", "name": "seen", "column": "item_history", "max_length": 6, **of_item},
            ],
        },
        "model": {
            "architecture": {
                **{"name": "sasrec", "item_tower": {"input": "item"}, "max_length": 6, "num_layers": 1},
                **{"dropout_ratio": 0.0, "negatives": "sampled"},
            },
            "groups": {"history": ["seen"], "item": ["item"]},
        },
        "tasks": {"next": {"losses": ["sampled_softmax"]}},
        "train": {
            "sparse_optimizer": {"name": "adam", "learning_rate": 0.02},
            "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.02},
            "batch_size": 40,
            "epochs": 30,
        },
        "evaluate": {"catalog": {"top_k": [1], "exclude_seen": False}},
    }


def test_the_next_item_is_learned(mapping, tmp_path):
    run = runs.train(config.from_mapping(mapping), tmp_path / "run")
    found = run.evaluate()
    assert found["catalog_hr_at_1"] > 0.95
    assert found["loss"] < 0.5  # of the last event alone; 2.5 where nothing is known
    rows = {"user": [0], "item": [0], "item_history": [[3, 6, 9]]}
    assert set(run.predict(rows)) >= {"next", "user_vector"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"user_column": None}, "histories need user_column and item_column"),
        ({"split": {"by": "random"}}, "histories hold out events by last or newest; remove split"),
        ({"histories": {"newest": 0.1}}, "histories.newest needs histories.time_column"),
    ],
)
def test_bad_sections(mapping, change, problem):
    mapping["data"] |= change
    with pytest.raises(config.ConfigError, match=problem):
        config.from_mapping(mapping)


def test_items_and_elements_share_their_tables(mapping):
    mapping["data"]["features"][1]["table"] = "others"
    with pytest.raises(config.ConfigError, match="'seen' and 'item' to share a table; they have others, items"):
        config.assemble(config.from_mapping(mapping))
