"""Models of histories that read one candidate an example, from a config of Sparrow: trained, exported and served."""

import pyarrow.parquet as pq
import pytest

from sparrow import config, exports, runs, samples, serving
from tests.config.rows import same_predictions

HSTU = {
    "embedding_dim": 8,
    "num_heads": 2,
    "hidden_dim": 4,
    "attention_dim": 4,
    "scaling_seqlen": 6,
    "attn_num_layers": 1,
}
FEATURES = [
    {"kind": "id", "name": "user", "num_buckets": 20, "embedding_dim": 4},
    {"kind": "id", "name": "item", "num_buckets": 20, "embedding_dim": 4, "table": "items"},
    {
        **{"kind": "sequence", "name": "seen", "num_buckets": 20, "embedding_dim": 4, "table": "items"},
        **{"max_length": 6, "separator": ";"},
    },
    {"kind": "raw_sequence", "name": "actions", "max_length": 6, "separator": ";"},
]
MODELS = {
    "dlrm_hstu": (
        {"hstu": HSTU, "task_towers": [{"task": "click"}, {"task": "buy", "mlp": {"hidden_units": [4]}}]},
        {"uih": ["seen"], "uih_action": ["actions"], "candidate": ["item"], "contextual": ["user"]},
        {name: {"label": name, "losses": ["binary_cross_entropy"], "metrics": ["auc"]} for name in ("click", "buy")},
    ),
    "hstu_match": (
        {"hstu": HSTU, "item_tower": {"input": "item", "mlp": {"hidden_units": [8]}}, "output_dim": 4},
        {"uih": ["seen"], "uih_action": ["actions"], "item": ["item"]},
        {"match": {"label": "click", "losses": ["in_batch_softmax"], "metrics": ["recall_at_k"]}},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_trains_evaluates_predicts_exports_and_serves(name, tmp_path):
    options, groups, tasks = MODELS[name]
    files = str(tmp_path / "data" / "train.parquet")
    used = {feature for names in groups.values() for feature in names}
    loaded = config.from_mapping(
        {
            "data": {
                "train": {"name": "parquet", "path": files},
                "evaluate": {"name": "parquet", "path": files},
                "features": [feature for feature in FEATURES if feature["name"] in used],
            },
            "model": {"architecture": {"name": name, **options}, "groups": groups},
            "tasks": tasks,
            "train": {
                "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.05},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.01},
                "batch_size": 8,
                "steps": 50,
            },
        }
    )
    loaded = samples.write(loaded, tmp_path / "data", rows=96)
    runs.train(loaded, tmp_path / "run")
    program, state = runs.load(tmp_path / "run")
    results = runs.Evaluator(program)(state)
    assert results["loss"] == results["loss"]  # a number
    runs.predict(program, state, files, tmp_path / "predicted.parquet")
    exports.export(program, state, tmp_path / "exported")
    model = serving.load(tmp_path / "exported")
    serving.predict(model, files, tmp_path / "served.parquet")
    same_predictions(tmp_path / "predicted.parquet", tmp_path / "served.parquet")
    columns = pq.read_table(files).slice(0, 3).to_pydict()
    request = {column: columns[column] for column in model.signature["predict"]["inputs"]}
    assert len(next(iter(model.predict(request).values()))) == 3
