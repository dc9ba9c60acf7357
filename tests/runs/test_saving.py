"""Saved models: everything comes back to the bit, and what cannot be read is one clear line."""

import io
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparrow import runs
from sparrow.checkpoint import CheckpointError
from sparrow.config import ConfigError
from sparrow.data import ClickLog, DataError, write_clicks
from tests.runs.cases import FIELDS, IDS, case
from tests.runs.test_training import assert_same_bits

OPTIONS = (
    "train.steps=3",
    "train.ema=0.9",
    "model.architecture.deep={hidden_units: [8], dropout_ratio: 0.5, use_bn: true}",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    return folder, runs.train(case(*OPTIONS), folder, stream=io.StringIO())


def test_everything_comes_back(trained):
    folder, before = trained
    program, state = runs.load(folder)
    assert program.config == before.program.config
    assert_same_bits(before.state.optimizer, state.optimizer)
    assert_same_bits(before.state.rest, state.rest)
    assert runs.Evaluator(program)(state) == before.results


def test_predictions_keep_columns_and_order(trained, tmp_path):
    _, before = trained
    write_clicks(ClickLog(impressions=700, fields=FIELDS, ids=IDS, start=7, chunk_rows=300), tmp_path / "in.parquet")
    rows = runs.predict(
        before.program,
        before.state,
        str(tmp_path / "in.parquet"),
        tmp_path / "out.parquet",
        columns=["id_1", "label"],
        batch_size=256,
    )
    given, made = pq.read_table(tmp_path / "in.parquet"), pq.read_table(tmp_path / "out.parquet")
    assert rows == 700
    assert made.column_names == ["id_1", "label", "click"]
    assert made.select(["id_1", "label"]).equals(given.select(["id_1", "label"]))
    # The same rows in one batch: the same predictions, row by row.
    runs.predict(before.program, before.state, str(tmp_path / "in.parquet"), tmp_path / "one.parquet", batch_size=700)
    one = pq.read_table(tmp_path / "one.parquet")["click"].to_numpy()
    np.testing.assert_allclose(one, made["click"].to_numpy(), rtol=1e-5)
    assert np.std(one) > 1e-4


def test_what_cannot_be_read(trained, tmp_path):
    folder, _ = trained
    with pytest.raises(DataError, match="there is no saved model"):
        runs.load(tmp_path)
    with pytest.raises(DataError, match="step 7 is not saved; the saved steps are 3"):
        runs.load(folder, step=7)
    with pytest.raises(ConfigError) as error:
        runs.load(folder, case(*OPTIONS, "model.architecture.deep.hidden_units=[9]"))
    first, *others = str(error.value).splitlines()
    assert "does not fit the model saved in" in first
    assert "has the shape" in first
    assert "model.architecture.deep.hidden_units[0]: was 8, is now 9" in others


FILES = 12  # of a checkpoint of this model, at least


def damaged(path, how):
    """Damages one file in one way."""
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


@pytest.fixture(scope="module")
def two_saved(tmp_path_factory):
    """A run with checkpoints of steps 2 and 4, and their states."""
    folder = tmp_path_factory.mktemp("two")
    runs.train(case("train.steps=4", "train.checkpoint.every_steps=2"), folder, stream=io.StringIO())
    states = {step: runs.load(folder, step=step).state for step in (2, 4)}
    return folder, states


@pytest.mark.parametrize(
    "how", ["flipped", *(pytest.param(how, marks=pytest.mark.slow) for how in ("missing", "truncated"))]
)
def test_every_file_is_guarded(two_saved, tmp_path, how):
    """Whatever happens to one file: the whole checkpoint is loaded, or the one before it, and that is said."""
    folder, states = two_saved
    files = sorted(path.relative_to(folder) for path in (folder / "checkpoints" / "4").rglob("*") if path.is_file())
    assert len(files) >= FILES
    program = runs.load(folder).program
    for index, file in enumerate(files):
        copy = tmp_path / str(index)
        shutil.copytree(folder / "checkpoints", copy / "checkpoints")
        damaged(copy / file, how)
        said = []
        _, state = runs.load(copy, program.config, log=said.append)
        assert len(said) == 1
        assert "checkpoint 4 is damaged and was skipped" in said[0]
        assert file.name in said[0]
        assert_same_bits(states[2], state)


def test_when_all_are_damaged(two_saved, tmp_path):
    folder, _ = two_saved
    shutil.copytree(folder / "checkpoints", tmp_path / "checkpoints")
    for step in (2, 4):
        (tmp_path / "checkpoints" / str(step) / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match="every checkpoint is damaged"):
        runs.load(tmp_path, log=lambda _: None)
    with pytest.raises(CheckpointError, match=r"manifest.json: it is missing"):
        runs.load(tmp_path, step=4)


def test_the_newest_and_the_best_are_kept(tmp_path):
    """The first evaluation has the largest loss: its checkpoint outlives all but the newest."""
    options = ["train.steps=8", "evaluate.every_steps=2", "train.log_every_steps=8"]
    options.append("train.checkpoint={every_steps: 3, keep: 1, best_by: {metric: loss, mode: max}}")
    trained = runs.train(case(*options), tmp_path, stream=io.StringIO())
    folder = runs.RunFolder(tmp_path)
    assert folder.steps == [8, 2]
    assert folder.status == {
        "finished": True,
        "best": [2, pytest.approx(0.63, abs=0.05), pytest.approx(0.63, abs=0.05)],
    }
    _, best = runs.load(tmp_path, step="best")
    assert int(best.optimizer.step) == 2
    again = runs.train(case(*options), tmp_path, resume=True, stream=io.StringIO())
    assert_same_bits(trained.state, again.state)
    assert again.results == trained.results
    assert folder.steps == [8, 2]
    with pytest.raises(ConfigError, match=r"train.checkpoint.best_by.metric: .*did you mean 'auc'"):
        runs.train(case("train.checkpoint.best_by={metric: acu, mode: max}"), stream=io.StringIO())
