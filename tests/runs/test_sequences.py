"""Sequences in order, from a config to a service: a model that needs order learns, and its export predicts the same."""

import io

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flax import nnx

from sparrow import config as configs
from sparrow import exports, models, plan, runs, serving
from sparrow.data import DataError

ITEMS, LENGTH = 8, 4


@models.register_model("test_last_item")
class LastItem(nnx.Module):
    """Whether the last item of the history is the target, by the product of their embeddings."""

    def __init__(self, inputs: models.Inputs, *, rngs: nnx.Rngs):
        self.group = inputs.sequence_group("history")
        self.scale, self.bias = nnx.Param(jnp.ones(())), nnx.Param(jnp.zeros(()))
        self.prices = nnx.Linear(self.group.sequences.dim - self.group.queries.dim, 1, rngs=rngs)

    def __call__(self, acts, numbers):
        history, target = self.group.sequence(acts, numbers), self.group.query(acts, numbers)
        last = jnp.maximum(history.lengths - 1, 0)[:, None, None]
        newest = jnp.take_along_axis(history.clean, last, axis=1)[:, 0]
        dim = target.shape[1]
        product = (newest[:, :dim] * target).sum(axis=1)
        return {"logits": self.scale * product + self.bias + 0.01 * self.prices(newest[:, dim:])[:, 0]}


def rows(count, seed=0, as_text=False):
    """The target is the last item of the history, or another of it: its items alone tell nothing."""
    rng = np.random.default_rng(seed)
    seen = [rng.choice(ITEMS, rng.integers(0, 7), replace=False).tolist() for _ in range(count)]
    target = [
        int(rng.integers(0, ITEMS)) if not h else h[-1] if rng.random() < 0.5 else int(rng.choice(h)) for h in seen
    ]
    label = [float(bool(h) and h[-1] == t) for h, t in zip(seen, target, strict=True)]
    prices = [[float(i) / 4 for i in h] for h in seen]
    if as_text:
        seen, prices = (["|".join(map(str, h)) for h in column] for column in (seen, prices))
    return pa.table({"seen": seen, "prices": prices, "target": target, "label": label})


def described(folder, *overrides, **replaced):
    items = {**replaced.pop("ids", {"num_buckets": ITEMS}), "embedding_dim": 8, "table": "items"}
    separator = {"separator": "|"} if replaced.pop("as_text", False) else {}
    history = {"max_length": LENGTH, **separator}
    data = {
        "train": {
            "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.5},
            "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.02},
            "batch_size": 256,
            "steps": 80,
            "log_every_steps": 40,
        },
        "tasks": {"click": {"label": "label", "losses": ["binary_cross_entropy"], "metrics": ["auc"]}},
        "data": {
            "train": {"name": "parquet", "path": str(folder / "train.parquet")},
            "evaluate": {"name": "parquet", "path": str(folder / "test.parquet")},
            "features": [
                {"kind": "sequence", "name": "seen", **items, **history},
                {"kind": "raw_sequence", "name": "prices", **history},
                {
                    "kind": "raw_sequence",
                    "name": "bands",
                    "column": "prices",
                    "boundaries": [0.5, 1.0],
                    "embedding_dim": 2,
                    **history,
                },
                {"kind": "id", "name": "target", **items},
            ],
        },
        "model": {
            "architecture": {"name": "test_last_item"},
            "groups": {"history": ["seen", "prices", "bands", "target"]},
        },
    }
    data.update(replaced)
    return configs.from_mapping(data, overrides=overrides)


@pytest.fixture(scope="module", params=["lists", "texts"])
def trained(request, tmp_path_factory):
    folder, as_text = tmp_path_factory.mktemp(request.param), request.param == "texts"
    for name, count, seed in (("train", 8192, 0), ("test", 1000, 1)):
        pq.write_table(rows(count, seed, as_text), folder / f"{name}.parquet")
    return folder, runs.train(described(folder, as_text=as_text), folder / "run", stream=io.StringIO())


def test_a_model_that_needs_order_learns(trained):
    assert trained[1].results["auc"] > 0.97


def test_the_same_items_without_order_tell_little(trained):
    folder, of_order = trained
    texts = "separator: '|'," if "texts" in folder.name else ""
    pooled = described(
        folder,
        "data.features=[{kind: sequence, name: seen, num_buckets: 8, embedding_dim: 8, table: items, max_length: 4, "
        f"{texts} pooling: mean}}, {{kind: id, name: target, num_buckets: 8, embedding_dim: 8, table: items}}]",
        model={
            "architecture": {"name": "deepfm", "deep": {"hidden_units": [16]}},
            "groups": {"wide": ["seen", "target"], "deep": ["seen", "target"]},
        },
    )
    assert runs.train(pooled, stream=io.StringIO()).results["auc"] < of_order.results["auc"] - 0.1


def test_an_export_predicts_the_same(trained, tmp_path):
    folder, run = trained
    exports.export(run.program, run.state, tmp_path / "export")
    source = folder / "test.parquet"
    runs.predict(run.program, run.state, str(source), tmp_path / "predicted.parquet")
    expected = pq.read_table(tmp_path / "predicted.parquet")["click"].to_numpy()
    model, table = serving.load(tmp_path / "export"), pq.read_table(source)
    np.testing.assert_allclose(model.predict(table)["click"], expected, rtol=1e-5, atol=1e-6)
    for size in (1, 7):  # a request of few rows, empty histories among them
        np.testing.assert_allclose(model.predict(table[:size])["click"], expected[:size], rtol=1e-5, atol=1e-6)
    if "texts" not in folder.name:
        table = pa.table({"seen": [[1, 2]], "prices": [[0.5]], "target": [1]})
        with pytest.raises(DataError, match="the sequences 'seen' and 'prices' must have one length"):
            model.predict(table)


@pytest.mark.slow
def test_ids_of_a_growing_vocabulary_stay_in_order(tmp_path):
    """The same histories with other ids, far apart: the table gives them rows as they come."""
    for name, count, seed in (("train", 8192, 0), ("test", 300, 1)):
        table = rows(count, seed)
        seen = [[2**40 * (item - 3) - 1 for item in h] for h in table["seen"].to_pylist()]
        target = [2**40 * (item - 3) - 1 for item in table["target"].to_pylist()]
        pq.write_table(
            table.set_column(0, "seen", [seen]).set_column(2, "target", [target]), tmp_path / f"{name}.parquet"
        )
    made = described(tmp_path, ids={"dynamic": {"rows": 20}})
    run = runs.train(made, tmp_path / "run", stream=io.StringIO())
    assert run.results["auc"] > 0.97
    program, state = runs.load(tmp_path / "run")
    exports.export(program, state, tmp_path / "export")
    source = tmp_path / "test.parquet"
    runs.predict(program, state, str(source), tmp_path / "predicted.parquet")
    expected = pq.read_table(tmp_path / "predicted.parquet")["click"].to_numpy()
    made = serving.load(tmp_path / "export").predict(pq.read_table(source))["click"]
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


def test_plan_reads_sequences(trained):
    folder, _ = trained
    assert plan(described(folder, as_text="texts" in folder.name))


def test_lengths_that_differ_name_both(tmp_path):
    table = rows(64)
    prices = table["prices"].to_pylist()
    prices[5] = [*prices[5], 1.0]
    pq.write_table(table.set_column(1, "prices", [prices]), tmp_path / "train.parquet")
    pq.write_table(rows(64), tmp_path / "test.parquet")
    with pytest.raises((DataError, runs.RunError), match="'seen' and 'prices' must have one length"):
        runs.train(described(tmp_path, "train.batch_size=64", "train.steps=1"), stream=io.StringIO())


def test_max_lengths_that_differ_name_both(tmp_path):
    with pytest.raises(configs.ConfigError, match="'seen' and 'prices' differ in max_length: 4 and 5"):
        runs.Program.of(described(tmp_path, "data.features[1].max_length=5"))


def test_a_model_without_an_encoder_refuses_a_sequence(tmp_path):
    config = described(
        tmp_path,
        model={
            "architecture": {"name": "deepfm", "deep": {"hidden_units": [4]}},
            "groups": {"wide": ["target"], "deep": ["seen", "prices", "bands", "target"]},
        },
    )
    with pytest.raises(configs.ConfigError, match="'seen' is a sequence in order; give it a pooling"):
        runs.Program.of(config)
