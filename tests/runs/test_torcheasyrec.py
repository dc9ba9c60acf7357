"""Configs of TorchEasyRec train: one that uses every supported field, and the optimizers of its own examples."""

import io

import jax
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from sparrow import config, runs
from tests.config.examples import EVERYTHING, sampled_dssm

ROWS = 256


def texts(rng, words, count, separator):
    """Always as many words: batches of one size are compiled once."""
    return [separator.join(rng.choice(words, count)) for _ in range(ROWS)]


def columns(seed):
    """What EVERYTHING reads. Whether an item is clicked depends on the item alone."""
    rng = np.random.default_rng(seed)
    items = rng.integers(0, 50, ROWS)
    return {
        "uid": rng.integers(0, 100, ROWS),
        "friend": rng.integers(0, 100, ROWS),
        "iid": [f"item {i}" for i in items],
        "shop": rng.choice(["a", "b", "c"], ROWS),
        "city": rng.choice(["Rome", "Oslo", "Lima"], ROWS),
        "price": [f"{a:.2f},{b:.2f}" for a, b in rng.random((ROWS, 2))],
        "clicks": rng.random(ROWS),
        "rank": rng.integers(1, 12, ROWS),
        "tags": texts(rng, ["new:1.5", "sale:0.5"], 2, "|"),
        "age": rng.integers(10, 60, ROWS),
        "seen__iid": texts(rng, ["item 1", "item 2", "item 3"], 25, "|"),
        "bought": texts(rng, ["1", "2", "8"], 7, ";"),
        "user_key": rng.integers(0, 10, ROWS),
        "clk": items % 2,
        "weight": rng.random(ROWS) + 0.5,
    }


@pytest.fixture
def quick_compilation():
    """One step of so many options takes long to compile well, and is run a few times only."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_compilation")
def test_a_config_of_every_field_trains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").mkdir()
    for seed, name in enumerate(("train/a.parquet", "train/b.parquet", "more.parquet", "eval.parquet")):
        pq.write_table(pa.table(columns(seed)), tmp_path / name)
    (tmp_path / "c.txt").write_text("Rome\nOslo\n")
    (tmp_path / "everything.config").write_text(EVERYTHING)
    # As written, but for its length: a part counts epochs, of (3 files x 256 rows / 64) / 2 steps.
    loaded = config.load("everything.config", ["train.steps=8", "evaluate.steps=2", "evaluate.every_steps=4"])
    stream = io.StringIO()
    trained = runs.train(loaded, stream=stream)
    assert trained.steps == 8
    assert "an epoch is 6 steps" in stream.getvalue()
    assert int(trained.state.optimizer.skipped) == 0
    assert all(np.isfinite(value) for value in trained.results.values())
    assert {"loss", "auc(thresholds=100)", "grouped_auc(user_key)", "xauc(in_batch=True)"} <= set(trained.results)
    embedder, state = trained.program.embedder, trained.state.optimizer.embedding
    before = trained.program.init().optimizer.embedding
    assert embedder.table(state, "tags").dtype == "float16"
    np.testing.assert_array_equal(embedder.table(state, "shop"), embedder.table(before, "shop"))  # frozen
    assert not np.asarray(embedder.table(before, "item_wide")).any()
    assert np.asarray(embedder.table(state, "item_wide")).any()
    assert (tmp_path / "experiments" / "everything").is_dir()
    again = config.loads(config.dumps(loaded))
    assert again == loaded


EXAMPLE = """
train_input_path: "train.csv"
eval_input_path: "train.csv"
train_config {
  sparse_optimizer { adagrad_optimizer { lr: 0.001 } constant_learning_rate {} }
  dense_optimizer { adam_optimizer { lr: 0.001 } constant_learning_rate {} }
  num_epochs: 3
}
data_config {
  batch_size: 32
  dataset_type: CsvDataset
  input_fields { input_name: "user" } input_fields { input_name: "item" } input_fields { input_name: "clk" }
  label_fields: "clk"
}
feature_configs { id_feature { feature_name: "user" num_buckets: 100 embedding_dim: 4 } }
feature_configs { id_feature { feature_name: "item" num_buckets: 50 embedding_dim: 4 } }
model_config {
  feature_groups { group_name: "all" feature_names: ["user", "item"] }
  multi_tower { towers { input: "all" mlp { hidden_units: 16 } } final { hidden_units: 8 } }
  losses { binary_cross_entropy {} }
  metrics { auc {} }
}
"""


@pytest.mark.slow
def test_the_optimizers_of_its_examples_learn(tmp_path, monkeypatch):
    """Sparse Adagrad and dense Adam, both at a constant 1e-3, on CSV files."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    user, item = rng.integers(0, 100, 4096), rng.integers(0, 50, 4096)
    table = pa.table({"user": user, "item": item, "clk": item % 2})
    pyarrow.csv.write_csv(table, "train.csv", pyarrow.csv.WriteOptions(include_header=False))
    trained = runs.train(config.import_config(EXAMPLE), stream=io.StringIO())
    assert trained.steps == 3 * 4096 // 32
    assert runs.Evaluator(trained.program)(trained.program.init())["auc"] < 0.6
    assert trained.results["auc"] > 0.8


@pytest.mark.slow
def test_dssm_with_a_negative_sampler_learns(tmp_path, monkeypatch):
    """Each user chooses one item; the items are a table of TorchEasyRec's own form."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    user = rng.integers(0, 9, 2048)
    chosen = (user * 5 + 2) % 8
    table = pa.table({"u": user, "i": chosen, "p": chosen % 3, "clk": np.ones(2048, np.int64)})
    pyarrow.csv.write_csv(table, "a.csv", pyarrow.csv.WriteOptions(delimiter="\t"))
    lines = [f"{item}\t{1 + item % 2}.0\t{item}\x02{item % 3}\n" for item in range(8)]
    (tmp_path / "items.txt").write_text("id:int64\tweight:float\tattrs:string\n" + "".join(lines))
    (tmp_path / "dssm.config").write_text(
        sampled_dssm().replace("train_config", 'eval_input_path: "a.csv" train_config')
    )
    fast = ["train.sparse_optimizer.learning_rate=0.1", "train.dense_optimizer.learning_rate=0.01"]
    loaded = config.load("dssm.config", [*fast, "train.batch_size=64", "train.epochs=2"])
    trained = runs.train(loaded, stream=io.StringIO())
    metric = "recall_at_1"
    assert runs.Evaluator(trained.program)(trained.program.init())[metric] < 0.4
    assert trained.results[metric] > 0.9
