"""Exports of dynamic tables: used rows with their ids, looked up as training did."""

import io
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

from sparrow import exports, runs, serving
from sparrow.data import DataError, Parquet
from tests.runs.test_dynamic import growing


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    runs.train(growing("train.steps=8", "data.ahead=4"), folder, stream=io.StringIO())
    return runs.load(folder)


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "export"
    exports.export(*trained, folder)
    return folder


def columns(count=200):
    generator = np.random.default_rng(0)
    made = {f"id_{i}": generator.integers(0, 2000, count) for i in range(3)}
    missing = np.arange(count) % 7 == 0
    return pa.table({**made, "id_0": pa.array(made["id_0"], mask=missing)})


def test_predicts_as_the_run_does_for_known_unknown_and_missing_ids(trained, exported, tmp_path):
    program, state = trained
    rows = columns()
    pq.write_table(rows, tmp_path / "rows.parquet")
    runs.predict(program, state, Parquet(str(tmp_path / "rows.parquet")), tmp_path / "out.parquet")
    ours = pq.read_table(tmp_path / "out.parquet").column("click").to_numpy()
    theirs = serving.load(exported).predict(rows)["click"]
    np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-6)
    assert len(np.unique(ours)) > 50


def test_holds_used_rows_alone(trained, exported):
    program, state = trained
    embedding = state.optimizer.embedding
    described = json.loads((exported / "export.json").read_text())["tables"]
    held = program.embedder.held(embedding, "id_1")
    assert described["id_1"]["rows"] == program.embedder.ids(embedding, "id_1").rows.max() + 1 <= 200
    assert described["id_0"]["rows"] == program.embedder.ids(embedding, "id_0").rows.max() + 1
    ids = load_file(exported / "ids.safetensors")
    assert ids["id_0/unknown"].tolist() == [0]
    assert ids["id_1/unknown"].tolist() == [-1]
    assert len(ids["id_1/ids"]) <= held.used  # without those that have expired


def test_a_damaged_file_of_ids_is_one_line(exported, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(exported, copy)
    save_file({}, copy / "ids.safetensors")
    with pytest.raises(DataError, match=r"ids\.safetensors: holds"):
        serving.load(copy)
