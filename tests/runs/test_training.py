"""The loop: every kind of model learns, runs repeat to the bit, options do what they say."""

import io
import json
import math

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import runs
from sparrow.config import ConfigError
from sparrow.data import DataError
from sparrow.runs.parts.reporting import Rates
from tests.runs.cases import IDS, NAMES, case

GROUP = {"all": NAMES}
MODELS = {
    "deepfm": ({"name": "deepfm", "deep": {"hidden_units": [8]}}, {"wide": NAMES, "deep": NAMES}),
    "dlrm": ({"name": "dlrm", "final": {"hidden_units": [16]}}, {"sparse": NAMES}),
}


def quiet(config, folder=None):
    return runs.train(config, folder, stream=io.StringIO())


def untrained(trained):
    return runs.Evaluator(trained.program)(trained.program.init())


def leaves(state):
    plain = jax.tree.map(
        lambda x: jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x, state
    )
    return [np.asarray(leaf) for leaf in jax.tree.leaves(plain)]


def assert_same_bits(a, b):
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(a)]
    a, b = leaves(a), leaves(b)
    assert len(a) == len(b)
    pairs = zip(names, a, b, strict=True)
    assert [name for name, x, y in pairs if not np.array_equal(x, y, equal_nan=True)] == []


@pytest.mark.parametrize("name", MODELS)
def test_click_models_learn(name):
    architecture, groups = MODELS[name]
    trained = quiet(case(model={"architecture": architecture, "groups": groups}))
    assert trained.steps == 40
    assert untrained(trained)["auc"] < 0.6
    assert trained.results["auc"] > 0.7
    assert trained.results["auc"] == pytest.approx(trained.results["exact_auc"], abs=0.01)


@pytest.mark.slow
def test_mmoe_learns_both_tasks():
    towers = [{"task": task, "mlp": {"hidden_units": [8]}} for task in ("click", "likely")]
    config = case(
        "data.labels=[{name: likely, column: probability, at_least: 0.3}]",
        model={
            "architecture": {"name": "mmoe", "expert_mlp": {"hidden_units": [8]}, "task_towers": towers},
            "groups": GROUP,
        },
        tasks={
            "click": {"label": "label", "losses": ["binary_cross_entropy"], "metrics": ["auc"]},
            "likely": {"label": "likely", "losses": ["binary_cross_entropy"], "metrics": ["auc"]},
        },
    )
    trained = quiet(config)
    before = untrained(trained)
    assert max(before["click/auc"], before["likely/auc"]) < 0.6
    assert trained.results["click/auc"] > 0.68
    assert trained.results["likely/auc"] > 0.8


def pairs(path, rows, seed):
    """Each user chooses one item most of the time."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, IDS, rows)
    item = np.where(rng.random(rows) < 0.9, (7 * user + 3) % IDS, rng.integers(0, IDS, rows))
    pq.write_table(pa.table({"user": user, "item": item, "label": np.ones(rows)}), path)
    return {"name": "parquet", "path": str(path)}


def two_towers(tmp_path, *overrides):
    return case(
        *overrides,
        data={
            "train": pairs(tmp_path / "train.parquet", 2048, 0),
            "evaluate": pairs(tmp_path / "evaluate.parquet", 512, 1),
            "features": [
                {"kind": "id", "name": name, "num_buckets": IDS, "embedding_dim": 8} for name in ("user", "item")
            ],
        },
        model={
            "architecture": {
                "name": "dssm",
                "user_tower": {"input": "users", "mlp": {"hidden_units": [16]}},
                "item_tower": {"input": "items", "mlp": {"hidden_units": [16]}},
                "output_dim": 8,
            },
            "groups": {"users": ["user"], "items": ["item"]},
        },
        tasks={
            "match": {
                "label": "label",
                "losses": ["in_batch_softmax"],
                "metrics": [{"name": "recall_at_k", "top_k": 8}],
            }
        },
    )


def test_dssm_learns_and_predicts_vectors(tmp_path):
    trained = quiet(two_towers(tmp_path, "train.batch_size=64", "train.steps=100"))
    metric = "recall_at_8"
    assert untrained(trained)[metric] < 0.3
    assert trained.results[metric] > 0.7
    out = tmp_path / "out.parquet"
    runs.predict(trained.program, trained.state, str(tmp_path / "evaluate.parquet"), out, columns=["user"])
    table = pq.read_table(out)
    query, item = (np.stack(table[name].to_numpy()) for name in ("user_vector", "item_vector"))
    np.testing.assert_allclose((query * item).sum(1), table["match"].to_numpy(), rtol=1e-4, atol=1e-4)


def sampled(tmp_path, *overrides):
    """The two towers, with negatives from a table of items. Ids are texts there, and numbers in the examples."""
    items = {"item": [str(i) for i in range(IDS)], "count": [1.0 + i % 2 for i in range(IDS)]}
    pq.write_table(pa.table(items), tmp_path / "items.parquet")
    return two_towers(
        tmp_path,
        f"data.negatives={{items: {{name: parquet, path: {tmp_path}/items.parquet}}, group: items, id_column: item,"
        " weight_column: count, count: 16, evaluate_count: 40}",
        "model.architecture.negatives=sampled",
        "tasks.match.losses=[sampled_softmax]",
        "tasks.match.metrics=[{name: recall_at_k, top_k: 1}, {name: hit_rate_at_k, top_k: 1}]",
        "train.batch_size=64",
        *overrides,
    )


def test_dssm_learns_from_sampled_negatives(tmp_path):
    trained = quiet(sampled(tmp_path, "train.steps=100"), tmp_path / "run")
    metric = "recall_at_1"
    before = untrained(trained)
    assert before[metric] < 0.3
    assert trained.results[metric] > 0.8  # nine of ten choices can be known
    assert trained.results[metric] == trained.results["hit_rate_at_1"]
    out = tmp_path / "out.parquet"
    runs.predict(trained.program, trained.state, str(tmp_path / "evaluate.parquet"), out)
    assert pq.read_table(out).num_rows == 512


@pytest.mark.slow
def test_bpr_learns_from_pairs_of_a_session():
    trained = quiet(case("tasks.click.losses=[{name: bpr, session_name: id_0}]"))
    assert untrained(trained)["auc"] < 0.6
    assert trained.results["auc"] > 0.65


def test_same_seed_same_bits_and_another_seed_others():
    config = case("train.steps=5", "model.architecture.deep={hidden_units: [8], dropout_ratio: 0.5, use_bn: true}")
    first, second = quiet(config), quiet(config)
    assert_same_bits(first.state, second.state)
    assert first.results == second.results
    other = quiet(case("train.steps=5", "train.seed=1"))
    assert other.results != first.results


def test_accumulation_equals_the_large_batch():
    """Two micro-batches of 128 make the step of one batch of 256, the short ones at the end included."""
    options = ["train.steps=null", "train.epochs=1", "data.train.impressions=1100", "data.train.chunk_rows=1100"]
    large = quiet(case(*options))
    small = quiet(case(*options, "train.batch_size=128", "train.accumulate=2", "evaluate.batch_size=256"))
    assert large.steps == small.steps == 5
    for a, b in zip(leaves(large.state.optimizer.params), leaves(small.state.optimizer.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)
    assert large.results["loss"] == pytest.approx(small.results["loss"], rel=1e-4)


def test_skipped_steps_change_nothing():
    """A loss scale beyond float16: every step is skipped, and not even the batch statistics move."""
    config = case(
        "train.steps=3",
        "train.precision=float16",
        "train.loss_scale={init_scale: 1e30}",
        "model.architecture.deep={hidden_units: [8], use_bn: true}",
    )
    trained = quiet(config)
    assert int(trained.state.optimizer.skipped) == 3
    fresh = trained.program.init()
    assert_same_bits(fresh.rest, trained.state.rest)
    assert_same_bits(fresh.optimizer.embedding, trained.state.optimizer.embedding)


def test_early_stopping_and_the_log(tmp_path):
    config = case(
        "train.steps=50",
        "train.log_every_steps=2",
        "train.checkpoint={every_steps: 4}",
        "train.summaries=[loss, learning_rate, global_gradient_norm, gradient_norm, parameter, gradient]",
        "train.sparse_optimizer.learning_rate=0",
        "train.dense_optimizer.learning_rate=0",
        "evaluate={every_steps: 2, early_stopping: {metric: auc, mode: max, patience: 2}}",
    )
    stream = io.StringIO()
    trained = runs.train(config, tmp_path, stream=stream)
    assert trained.steps == 6  # the first evaluation, and two that were no better
    saved = [line.split()[2] for line in stream.getvalue().splitlines() if line.startswith("save ")]
    assert saved == ["2", "4", "6"]  # the best, by time, the last
    entries = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(e["kind"], e["step"]) for e in entries] == [
        (kind, step) for step in (2, 4, 6) for kind in ("train", "eval")
    ]
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"train/parameter/deep/" in events.read_bytes()
    assert b"train/gradient/deep/" in events.read_bytes()
    first = entries[0]
    assert first["learning_rate/sparse"] == 0
    parts = [value for name, value in first.items() if name.startswith("gradient_norm/")]
    assert 0 < math.hypot(*parts) < first["gradient_norm"]  # the tables' rows make the difference


def test_evaluation_by_epochs_uses_the_average():
    options = ["train.steps=null", "train.epochs=2", "data.train.impressions=512", "data.train.chunk_rows=512"]
    stream = io.StringIO()
    runs.train(case(*options, "train.ema=0.9", "evaluate={every_epochs: 1, log_every_steps: 3}"), stream=stream)
    batches = [line.split()[:3] for line in stream.getvalue().splitlines() if line.startswith("eval   batch")]
    assert batches == [["eval", "batch", str(n)] for n in (3, 6, 3, 6)]  # of 8 batches, twice
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("eval   step")]
    assert [line.split()[2] for line in lines] == ["2/4", "4/4"]
    plain = quiet(case(*options, "train.ema=0.9", "evaluate={use_ema: false}"))
    averaged = quiet(case(*options, "train.ema=0.9"))
    assert_same_bits(plain.state, averaged.state)
    assert plain.results != averaged.results


def test_rates_that_count_epochs():
    """640 examples in batches of 128 are 5 batches, two of which make a step: an epoch is 3 steps."""
    rate = "{name: exponential_decay, lr: 0.1, decay_size: 1, decay_factor: 0.5, by_epoch: true}"
    options = ["train.batch_size=128", "train.accumulate=2", "train.log_every_steps=1", "data.train.impressions=640"]
    stream = io.StringIO()
    trained = runs.train(
        case(*options, f"train.sparse_optimizer.learning_rate={rate}", "train.steps=null", "train.epochs=2"),
        stream=stream,
    )
    assert trained.steps == 5  # of the 10 batches of two epochs
    assert "an epoch is 3 steps" in stream.getvalue()
    assert "step 5/5" in stream.getvalue()
    assert trained.program.embedder.tables["id_0"].optimizer.learning_rate.steps_per_epoch == 3
    assert Rates(trained.program).at(4)["learning_rate/sparse"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["evaluate={every_steps: 1, early_stopping: {metric: acu, mode: max}}"], "did you mean 'auc'"),
        (["tasks.click.losses=[bpr]"], "tasks: the losses need the output 'query'"),
        (["tasks.click.train_metrics=[exact_auc]"], "tasks.click.train_metrics: exact_auc keeps every row"),
        (["model.groups={deep: [id_0, id_1, id_2]}"], "model: "),
        (["tasks.click.losses=[in_batch_softmax]"], "tasks: the losses need the output 'query'"),
        (["tasks.other={label: label, losses: [l2]}"], "the model has one output, and the config 2 tasks"),
        (
            ["data.drop_remainder=true", "train.batch_size=5000", "train.steps=null", "train.epochs=1"],
            "do not fill a batch of 5000",
        ),
        (
            ["train.dense_optimizer.parts={a: {patterns: [nothing], optimizer: sgd, learning_rate: 1}}"],
            "train.dense_optimizer: ",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(overrides, message):
    with pytest.raises((ConfigError, DataError)) as error:
        quiet(case(*overrides))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
