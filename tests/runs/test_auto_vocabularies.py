"""``vocabulary: auto`` and collisions of hashed words: built and counted when a run starts, kept with it."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config as configs
from sparrow import runs
from sparrow.data import IdFeature, Tables, count_collisions

LAYERS = {"hidden_units": [4]}
WORDS = [f"word {i}" for i in range(21)]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    rng = np.random.default_rng(0)
    at, past = np.minimum(rng.geometric(0.2, 400) - 1, 20), rng.integers(0, 21, (400, 2))
    columns = {
        "word": [WORDS[i] for i in at],
        "past": ["|".join(WORDS[i] for i in row) for row in past],
        "label": (at % 2).astype(np.float32),
    }
    path = tmp_path_factory.mktemp("words") / "rows.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def described(file, mapping, *overrides):
    feature = {"kind": "id", "embedding_dim": 4, **mapping}
    config = {
        "train": {
            "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.1},
            "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.01},
            "batch_size": 64,
            "steps": 2,
        },
        "tasks": {"click": {"label": "label", "losses": ["binary_cross_entropy"], "metrics": ["auc"]}},
        "data": {
            "train": {"name": "parquet", "path": str(file)},
            "split": {"share": 0.2},
            "features": [
                {**feature, "name": "word", "table": "words"},
                {**feature, "name": "past", "table": "words", "separator": "|"},
            ],
        },
    }
    config["model"] = {
        "architecture": {"name": "dcn_v2", "cross_num": 1, "deep": LAYERS, "final": LAYERS},
        "groups": {"all": ["word", "past"]},
    }
    return configs.from_mapping(config, overrides=overrides)


def test_words_are_built_kept_and_used_again(file, tmp_path):
    log = io.StringIO()
    config = described(file, {"vocabulary": "auto"})
    run = runs.train(config, tmp_path / "run", stream=log)
    assert "vocabulary of table 'words': 21 words of the data to train on" in log.getvalue()
    word, past = run.program.assembly.features
    assert word.words is past.words  # one table, one vocabulary
    assert word.words.words[0] == "word 0"  # the most frequent first
    assert run.embedder.tables["words"].vocabulary_size == 22  # and a row for unknown words
    assert configs.load(tmp_path / "run" / "config.yaml").data.features[0].vocabulary == "auto"
    loaded = runs.load(tmp_path / "run")
    assert loaded.program.assembly.features[0].words.words == word.words.words
    assert loaded.evaluate() == run.results
    rows = pa.table({"word": ["word 3", "never seen"], "past": ["word 1", ""]})
    np.testing.assert_array_equal(loaded.predict(rows)["click"], run.predict(rows)["click"])
    log = io.StringIO()
    runs.train(described(file, {"vocabulary": "auto"}, "train.steps=3"), tmp_path / "run", resume=True, stream=log)
    assert "vocabulary of table" not in log.getvalue()  # the run's own words


def test_collisions_are_logged_and_recorded(file, tmp_path):
    log = io.StringIO()
    runs.train(described(file, {"hash_bucket_size": 30}), tmp_path / "run", stream=log)
    found = json.loads((tmp_path / "run" / "environment.json").read_text())["hashed"]["word"]
    assert found["words"] == 21
    assert found["rows"] < 21
    assert f"feature 'word': 21 distinct values share {found['rows']} of 30 rows" in log.getvalue()


def test_no_collision_is_no_line():
    feature = IdFeature("id", hash_bucket_size=10**6, embedding_dim=4)
    (found,) = count_collisions(Tables({"id": [1, 2, None, 2]}), [feature])
    assert (found.words, found.rows, found.examples) == (2, 2, 4)
