"""Runs, exports, reports and predictions in another store."""

import io
import os
import secrets
import time

import pyarrow.parquet as pq
import pytest

from sparrow import runs, serving
from sparrow.data import ClickLog, DataError, write_clicks
from sparrow.files import at, replace_file
from sparrow.reports import write_report
from tests.runs.cases import case
from tests.runs.test_training import assert_same_bits


@pytest.fixture
def folder(s3):
    return f"{s3}/{secrets.token_hex(4)}"


def config(folder, *overrides):
    return case(f"data.train={{name: parquet, path: '{folder}/clicks/*.parquet'}}", "train.steps=6", *overrides)


def test_a_run_from_data_to_server(folder, tmp_path):
    write_clicks(ClickLog(4096, fields=3, ids=20, chunk_rows=1024), tmp_path / "clicks.parquet")
    at(f"{folder}/clicks/1.parquet").send(tmp_path / "clicks.parquet")
    given = config(folder, "train.checkpoint={every_steps: 2, keep: 2}")
    runs.train(
        config(folder, "train.checkpoint={every_steps: 2, keep: 2}", "train.steps=4"),
        f"{folder}/run",
        stream=io.StringIO(),
    )
    stream = io.StringIO()
    made = runs.train(given, f"{folder}/run", resume=True, stream=stream)  # as on another machine
    assert "resumed at step 4 from " in stream.getvalue()
    whole = runs.train(given, tmp_path / "run", stream=io.StringIO())
    assert_same_bits(made.state, whole.state)
    names = {str(file.relative_to(at(f"{folder}/run"))) for file in at(f"{folder}/run").rglob()}
    assert {"config.yaml", "metrics.jsonl", "checkpoints/6/manifest.json", "checkpoints/4/manifest.json"} <= names
    assert not any(name.startswith(("checkpoints/2/", ".")) for name in names)
    loaded = runs.load(f"{folder}/run")
    assert loaded.step == 6
    assert_same_bits(loaded.state, whole.state)
    # A report, an export, predictions, all in the store.
    assert str(write_report([f"{folder}/run"])) == f"{folder}/run/report.html"
    loaded.export(f"{folder}/export")
    with pytest.raises(DataError, match="is an export already"):
        loaded.export(f"{folder}/export")
    loaded.export(f"{folder}/export", overwrite=True)
    model = serving.load(f"{folder}/export")
    serving.predict(model, f"{folder}/clicks", f"{folder}/scores.parquet")
    loaded.predict_file(str(tmp_path / "clicks.parquet"), tmp_path / "scores.parquet")
    at(f"{folder}/scores.parquet").fetch(tmp_path / "fetched.parquet")
    assert pq.read_table(tmp_path / "fetched.parquet") == pq.read_table(tmp_path / "scores.parquet")
    # Credentials are in no file of the run, nor in the log.
    assert not any(os.environ["AWS_SECRET_ACCESS_KEY"].encode() in file.read_bytes() for file in at(folder).rglob())
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in stream.getvalue()


def test_a_damaged_export_in_a_store_is_refused(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    run = runs.train(case("train.steps=1"), tmp_path, stream=io.StringIO())
    run.export(f"{folder}/export")
    tables = at(f"{folder}/export/tables.safetensors")
    data = bytearray(tables.read_bytes())
    data[-1] ^= 1
    replace_file(tables, bytes(data))
    with pytest.raises(DataError, match="is damaged"):
        serving.load(f"{folder}/export")


def test_a_store_that_fails_ends_in_one_sentence(tmp_path):
    with pytest.raises(DataError, match="cannot be reached"):
        runs.train(case("train.steps=1"), "nosuchstore://folder/run", stream=io.StringIO())
