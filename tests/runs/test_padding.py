"""The short last batch of an epoch: padded, it has the program of the others and the results of a short batch."""

import copy
import dataclasses
import io
import json
import shutil

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparrow as sp
from sparrow import runs
from sparrow.config import from_mapping, train_pipeline
from sparrow.data.block import Block, concatenate
from sparrow.runs.evaluating.predict_files import predict_table
from sparrow.runs.step.program import may_pad
from tests.runs.cases import BASE, NAMES
from tests.runs.test_architectures import MODELS
from tests.runs.test_architectures import config as architecture
from tests.runs.test_training import assert_same_bits

ROWS, BATCH = 250, 48  # five batches, and ten rows


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Rows with bags, missing ids, numbers, weights and users; the last rows hold ids of their own."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 4, ROWS)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns = {name: pa.array(rng.integers(0, 19, ROWS), mask=rng.random(ROWS) < 0.1) for name in NAMES[1:]}
    columns[NAMES[0]] = pa.ListArray.from_arrays(offsets, rng.integers(0, 20, offsets[-1]))
    columns["price"] = rng.random(ROWS) + 1
    columns["label"] = rng.integers(0, 2, ROWS).astype(np.float32)
    columns["weight"] = rng.random(ROWS).astype(np.float32)
    columns["user"] = rng.integers(0, 9, ROWS)
    path = tmp_path_factory.mktemp("padding") / "rows.parquet"
    pq.write_table(pa.table(columns), path)
    return str(path)


def config(table, *overrides):
    made = copy.deepcopy(BASE)
    made["data"]["features"].append({"kind": "raw", "name": "price", "log": True})
    made["data"] |= {"train": {"name": "parquet", "path": table}, "evaluate": {"name": "parquet", "path": table}}
    made["data"]["shuffle_rows"] = 0
    made["model"]["groups"]["deep"] = [*NAMES, "price"]
    made["tasks"]["click"] |= {"sample_weight": "weight", "metrics": ["auc", "exact_auc", "mae", "calibration"]}
    made["tasks"]["click"]["metrics"].append({"name": "grouped_auc", "group_by": "user"})
    made["train"] |= {"batch_size": BATCH, "epochs": 2, "log_every_steps": 1}
    del made["train"]["steps"]
    return from_mapping(made, overrides=overrides)


def without_padding(monkeypatch):
    monkeypatch.setattr("sparrow.runs.step.program.may_pad", lambda *_, **__: False)


def trained(made, folder=None, **options):
    log = io.StringIO()
    return runs.train(made, folder, stream=log, **options), log.getvalue()


def assert_close(a, b, tolerance=1e-6):
    def close(x, y):
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)

    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(close, a, b)


NO_METRICS = ["tasks.click.metrics=[]", "tasks.click.train_metrics=[]"]
NUMBERS = ["tasks.click.metrics=[mae]", "tasks.click.train_metrics=[mse]"]
CASES = {
    "plain": [],
    "dropout": ["model.architecture.deep={hidden_units: [8], dropout_ratio: 0.5}"],
    "accumulated": ["train.accumulate=4"],
    "task_space": ["tasks.click.task_space_label=price", "tasks.click.out_task_space_weight=0.5"],
    "clipped": ["train.clip_global_norm=0.01", "train.summaries=[global_gradient_norm]"],
    "sgd_of_numbers": [*NUMBERS, "tasks.click.losses=[l2]", "train.ema=0.9"],
    "in_host_memory": ["model.tables=[{tables: ['.*'], memory: {kind: host, cache: 1.0}}]"],
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * bool(CASES[name])) for name in CASES])
def test_the_results_of_a_short_batch_by_the_program_of_the_others(name, table, tmp_path, monkeypatch):
    made = config(table, *CASES[name])
    padded, log = trained(made, tmp_path / "padded")
    assert "compile training" not in log
    assert name == "in_host_memory" or "compile" not in log  # its bags grow in evaluation
    without_padding(monkeypatch)
    short, compiles = trained(made, tmp_path / "short")
    assert "compile training program 2" in compiles
    assert "compile evaluation program 2" in compiles
    assert_close(padded.state, short.state)
    assert padded.results == pytest.approx(short.results, rel=1e-5)
    for ours, theirs in zip(lines(tmp_path / "padded"), lines(tmp_path / "short"), strict=True):
        assert ours.keys() == theirs.keys()
        assert ours.get("loss", 0.0) == pytest.approx(theirs.get("loss", 0.0), rel=1e-5)


def test_bags_of_padding_are_empty_and_its_ids_touch_no_row(table):
    made = config(table, "train.epochs=1")
    program = runs.Program.of(made)
    *_, last = train_pipeline(made, program.preparer(use="train"))
    assert (last.examples, last.feed.size) == (ROWS % BATCH, BATCH)
    there = pq.read_table(table).slice(ROWS - last.examples)
    for name, acts in program.embedder.lookup(program.init().optimizer.embedding, last.feed.packed).items():
        assert not np.asarray(acts[last.examples :]).any(), name
    ids = {int(i) for array in there.column(NAMES[0]).to_pylist() for i in array}
    rows = {stack.name: stack.num_rows for stack in program.embedder.stacks}
    held = {name: np.asarray(one.ids) for name, one in last.feed.packed.lookups.items()}
    touched = {name: set(array[array < rows[name]].tolist()) for name, array in held.items()}
    words = ids | {20 * i + int(x) for i in (1, 2) for x in there.column(NAMES[i]).drop_null().to_pylist()}
    assert all(len(own) == len(words) for own in touched.values())


def test_predictions_of_a_short_batch(table, monkeypatch):
    state = trained(config(table, "train.epochs=1"))[0]
    ours = predict_table(state.program, state.state, table)
    without_padding(monkeypatch)
    theirs = predict_table(state.program, state.state, table)
    assert len(ours) == ROWS
    np.testing.assert_allclose(ours["click"], theirs["click"], rtol=1e-6)


def test_a_run_that_stops_before_the_short_batch_goes_on_with_the_same_bits(table, tmp_path):
    made = config(table, "train.checkpoint.every_steps=5")
    whole, _ = trained(made, tmp_path / "whole")
    for name in ("5", "10"):
        folder = tmp_path / name
        shutil.copytree(tmp_path / "whole", folder)
        for path in (folder / "checkpoints").iterdir():
            if path.name.isdigit() and int(path.name) > int(name):
                shutil.rmtree(path)
        resumed, _ = trained(made, folder, resume=True)
        assert_same_bits(whole.state, resumed.state)


def test_the_only_batch_of_an_epoch_keeps_its_size(table):
    made = config(table, "train.epochs=2", "train.batch_size=1000")
    sizes = [one.feed.size for one in train_pipeline(made, runs.Program.of(made).preparer(use="train"))]
    assert sizes == [ROWS, ROWS]


@pytest.mark.parametrize(
    ("overrides", "train", "evaluate"),
    [
        ([], True, True),
        (["model.architecture.deep={hidden_units: [8], use_bn: true}"], False, True),
        (["model.variational_dropout=0.1"], False, True),
        (["data.drop_remainder=true"], False, True),
        (["tasks.click.losses=[{name: jrc, session_name: user}]", *NO_METRICS], False, False),
    ],
)
def test_batches_whose_examples_are_compared_stay_short(overrides, train, evaluate, table):
    program = runs.Program.of(config(table, *overrides))
    assert program.preparer(use="train").pads is train
    assert program.preparer(use="evaluate").pads is evaluate
    assert program.preparer(use="predict").pads is True


def test_models_and_losses_of_ones_own_stay_short_unless_they_are_per_example(table):
    made = config(table)

    @sp.losses.register_loss("test_padding_loss")
    @dataclasses.dataclass(frozen=True)
    class Centered(sp.losses.L2):
        is_per_example = False

    assert may_pad(made, "evaluate")
    assert not may_pad(config(table, "tasks.click.losses=[test_padding_loss]", *NUMBERS), "evaluate")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (_, _, tasks) in MODELS.items() if "match" not in tasks])
def test_gradients_of_every_model(name):
    """Padding behind a batch changes neither its loss nor a gradient."""
    made = architecture(name)
    program = runs.Program.of(made)
    assert may_pad(made, "train")
    preparer = program.preparer(use="train")
    batch = next(iter(train_pipeline(made, None))).cut(0, 7)
    block = Block.of(batch)
    padded = concatenate([block, block.nothing(5)]).to_batch()
    state = program.init()

    def gradients(feed):
        acts = program.embedder.lookup(state.optimizer.embedding, feed.packed)
        loss = jax.value_and_grad(lambda p, a: program.loss(p, a, state.rest, feed)[0], argnums=(0, 1))
        value, (params, of_acts) = loss(state.optimizer.params, acts)
        return value, params, {name: (x[:7], x[7:]) for name, x in of_acts.items()}

    (ours, dense, acts), (theirs, other, short) = (gradients(preparer(one).feed) for one in (padded, batch))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert_close(dense, other)
    for feature, (own, of_padding) in acts.items():
        np.testing.assert_allclose(own, short[feature][0], rtol=1e-5, atol=1e-7)
        assert not np.asarray(of_padding).any()


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
