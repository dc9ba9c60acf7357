"""Every model over histories: from a config through training, a checkpoint and an export to predictions."""

import io

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparrow import config as configs
from sparrow import exports, runs, serving
from tests.runs.test_sequences import ITEMS, LENGTH, rows


def units(*hidden):
    return {"hidden_units": list(hidden)}


STU = {"embedding_dim": 8, "num_heads": 2, "hidden_dim": 4, "attention_dim": 4, "scaling_seqlen": LENGTH}
CLICK, MATCH = {"losses": ["binary_cross_entropy"], "metrics": ["auc"]}, {"losses": ["in_batch_softmax"]}
HISTORY = {"deep": ["target"], "history": ["target", "seen"]}
CAPSULES = {"high_dim": 4, "max_seq_len": LENGTH, "max_k": 2}
MIND = {
    "input": "users",
    "history_input": "history",
    "user_mlp": units(4),
    "capsule_config": CAPSULES,
    "concat_mlp": units(4),
}
ITEM = {"item_tower": {"input": "items", "mlp": units(4)}, "output_dim": 4}
MODELS = {
    "multi_tower_din": (
        {
            "towers": [{"input": "deep", "mlp": units(4)}],
            "din_towers": [{"input": "history", "attn_mlp": units(4)}],
            "final": units(4),
        },
        HISTORY,
        CLICK,
    ),
    "tdm": ({"windows_len": [2, 2], "attn_mlp": units(4), "final": units(4)}, HISTORY, CLICK),
    "dlrm_hstu": (
        {"hstu": STU, "mlp": units(4), "task_towers": [{"task": "click"}]},
        {"uih": ["seen"], "candidate": ["target"]},
        CLICK,
    ),
    "mind": ({"user_tower": MIND, **ITEM}, {"users": ["user"], "history": ["seen"], "items": ["target"]}, MATCH),
    "hstu_match": (
        {"hstu": STU, "history_input": "history", **ITEM},
        {"history": ["seen"], "items": ["target"]},
        MATCH,
    ),
}


def config(name, folder):
    options, groups, task = MODELS[name]
    used = {feature for names in groups.values() for feature in names}
    items = {"num_buckets": ITEMS, "embedding_dim": 4, "table": "items"}
    features = [
        {"kind": "sequence", "name": "seen", "max_length": LENGTH, **items},
        {"kind": "id", "name": "target", **items},
        {"kind": "id", "name": "user", "column": "target", "num_buckets": ITEMS, "embedding_dim": 4},
    ]
    return configs.from_mapping(
        {
            "train": {
                "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.1},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.01},
                "batch_size": 64,
                "steps": 3,
            },
            "tasks": {"click": {"label": "label", **task}},
            "data": {
                "train": {"name": "parquet", "path": str(folder / "train.parquet")},
                "evaluate": {"name": "parquet", "path": str(folder / "test.parquet")},
                "features": [feature for feature in features if feature["name"] in used],
            },
            "model": {"architecture": {"name": name, **options}, "groups": groups},
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_from_config_to_predictions(name, tmp_path):
    for file, count, seed in (("train", 256, 0), ("test", 40, 1)):
        pq.write_table(rows(count, seed), tmp_path / f"{file}.parquet")
    made = config(name, tmp_path)
    assert configs.loads(configs.dumps(made)) == made
    trained = runs.train(made, tmp_path / "run", stream=io.StringIO())
    assert np.isfinite(list(trained.results.values())).all()
    program, state = runs.load(tmp_path / "run")
    runs.predict(program, state, str(tmp_path / "test.parquet"), tmp_path / "predicted.parquet")
    expected = pq.read_table(tmp_path / "predicted.parquet")["click"].to_numpy()
    exports.export(program, state, tmp_path / "export")
    served = serving.load(tmp_path / "export").predict(pq.read_table(tmp_path / "test.parquet"))
    np.testing.assert_allclose(served["click"], expected, rtol=1e-4, atol=1e-5)
