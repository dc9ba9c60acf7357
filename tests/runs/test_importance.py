"""Importance of features by permutation: of planted ones, of one without any effect, in the report."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config, runs
from sparrow.cli import main

ROWS = 4000
NAMES = ("strong", "weak", "noise")


def rows(seed):
    """Clicks depend on ``strong``, a little on ``weak``, and not on ``noise``."""
    rng = np.random.default_rng(seed)
    strong, weak, noise = (rng.integers(0, 4, ROWS) for _ in range(3))
    chance = 1 / (1 + np.exp(-(3.0 * (strong % 2 * 2 - 1) + 0.8 * (weak % 2 * 2 - 1))))
    label = (rng.uniform(size=ROWS) < chance).astype(int)
    return pa.table({"strong": strong, "weak": weak, "noise": noise, "label": label})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("importance")
    for seed, name in enumerate(("train", "evaluate")):
        pq.write_table(rows(seed), folder / f"{name}.parquet")
    features = [
        {"kind": "id", "name": name, "num_buckets": 4, "embedding_dim": 4} for name in ("strong", "weak", "noise")
    ]
    features.append({**features[2], "name": "again", "column": "noise"})
    names = [feature["name"] for feature in features]
    made = config.from_mapping(
        {
            "data": {
                "train": {"name": "parquet", "path": str(folder / "train.parquet")},
                "evaluate": {"name": "parquet", "path": str(folder / "evaluate.parquet")},
                "features": features,
            },
            "model": {
                "architecture": {
                    "name": "multi_tower",
                    "towers": [{"input": "all", "mlp": {"hidden_units": [8]}}],
                    "final": {"hidden_units": [8]},
                },
                "groups": {"all": names},
            },
            "tasks": {"click": {"label": "label", "losses": ["binary_cross_entropy"], "metrics": ["auc"]}},
            "train": {
                "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.1},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.02},
                "batch_size": 200,
                "steps": 60,
            },
        }
    )
    runs.train(made, folder / "run")
    return folder


def test_planted_features_are_found(trained):
    run = runs.load(trained / "run")
    found = run.importance()
    assert list(found)[:2] == ["strong", "weak"]
    assert set(found) == {"strong", "weak", "noise + again"}  # two that read one column go together
    assert found["strong"]["loss"] > 0.5 > found["weak"]["loss"] > 0.01
    assert abs(found["noise + again"]["loss"]) < 0.01
    assert found["strong"]["auc"] < -0.2
    assert found == run.importance(trained / "evaluate.parquet")  # the same rows, and the same permutation
    with pytest.raises(config.ConfigError, match="fewer than two rows"):
        run.importance(rows(0).slice(0, 1))


def test_the_report_shows_it(trained, capsys):
    folder = trained / "run"
    assert main(["report", str(folder)]) == 0
    assert "Importance of features" not in (folder / "report.html").read_text()
    assert main(["eval", str(folder), "--importance", "1000"]) == 0
    assert capsys.readouterr().out.splitlines()[-3].startswith("strong")
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert "Importance of features" in page
    assert page.index("<td>strong</td>") < page.index("<td>weak</td>")
    content = json.loads((folder / "importance.json").read_text())
    (folder / "importance.json").write_text(json.dumps({**content, "time": 0.0}))  # of an earlier run
    assert main(["report", str(folder)]) == 0
    assert "Importance of features" not in (folder / "report.html").read_text()
