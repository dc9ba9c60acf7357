"""Saved models: everything comes back to the bit, and what cannot be read is one clear line."""

import io

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparrow import runs
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
    assert made.column_names == ["id_1", "label", "prediction"]
    assert made.select(["id_1", "label"]).equals(given.select(["id_1", "label"]))
    # The same rows in one batch: the same predictions, row by row.
    runs.predict(before.program, before.state, str(tmp_path / "in.parquet"), tmp_path / "one.parquet", batch_size=700)
    one = pq.read_table(tmp_path / "one.parquet")["prediction"].to_numpy()
    np.testing.assert_allclose(one, made["prediction"].to_numpy(), rtol=1e-5)
    assert np.std(one) > 1e-4


def test_what_cannot_be_read(trained, tmp_path):
    folder, _ = trained
    with pytest.raises(DataError, match="there is no saved model"):
        runs.load(tmp_path)
    whole = (folder / "model.npz").read_bytes()
    (tmp_path / "model.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="is not a saved model, or was cut off"):
        runs.load(tmp_path)
    with pytest.raises(ConfigError, match="does not fit the model saved in"):
        runs.load(folder, case(*OPTIONS, "model.architecture.deep={hidden_units: [9]}"))
