"""Batches judged before they are trained on, by windows of steps and of time; drift; the same numbers when resumed."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config, metrics, runs
from sparrow.config import train_pipeline
from sparrow.data import ClickLog, write_clicks
from sparrow.reports import write_report
from sparrow.runs.loop.loop import Loop
from sparrow.runs.step.program import Program
from tests.runs.cases import case
from tests.runs.test_training import assert_same_bits

HOUR = 3600
FIRST = 1_767_225_600  # the begin of an hour


@pytest.fixture
def clicks(tmp_path):
    """Four hours of 512 clicks each: the second half has other ids, and a few rows come two hours late."""
    write_clicks(ClickLog(2048, fields=3, ids=20, chunk_rows=512), tmp_path / "plain.parquet")
    table = pq.read_table(tmp_path / "plain.parquet")
    hours = np.arange(2048) // 512
    times = FIRST + hours * HOUR + np.arange(2048) % 512
    times[2040:] -= 2 * HOUR
    ids = np.where(hours >= 2, 10, 0) + np.asarray(table["id_0"]) % 10
    table = table.set_column(table.schema.names.index("id_0"), "id_0", pa.array(ids))
    pq.write_table(table.append_column("time", pa.array(times)), tmp_path / "clicks.parquet", row_group_size=512)
    return tmp_path


def given(folder, *overrides):
    source = json.dumps({"name": "parquet", "path": str(folder / "clicks.parquet")})
    return case(
        *(f"data.train={source}", "data.evaluate=null", "data.shuffle_rows=0", "data.time_column=time"),
        *("train.steps=8", "train.traffic=1", "evaluate.windows={seconds: 3600}", *overrides),
    )


def windows(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "window"]


def test_windows_of_time(clicks):
    stream = io.StringIO()
    runs.train(given(clicks), clicks / "run", stream=stream)
    found = windows(clicks / "run")
    assert [one["event_time"] for one in found] == [FIRST + HOUR * hour for hour in range(4)]
    assert [one["examples"] for one in found] == [512] * 4
    assert [one["late"] for one in found] == [0, 0, 0, 8]
    assert found[0]["unseen/id_0"] > 0.4
    assert [one["unseen/id_0"] for one in found[1:]] == [0.0, 0.5, 0.0]
    assert all(one["coverage/id_0"] == 1.0 for one in found)
    labels = np.asarray(pq.read_table(clicks / "clicks.parquet")["label"], np.float64).reshape(4, 512)
    assert [one["label_rate"] for one in found] == pytest.approx(labels.mean(1).tolist())
    assert stream.getvalue().count("window  step") == 4
    page = write_report([clicks / "run"]).read_text()
    assert "Windows, before training on them" in page
    assert "Share of ids not seen before" in page


def test_predictions_are_those_before_the_update(clicks):
    """The first window of one step has the predictions of fresh weights."""
    small = given(clicks, "evaluate.windows={steps: 1}", "train.steps=2")
    runs.train(small, clicks / "run", stream=io.StringIO())
    program = Program.of(small)
    state = program.init()
    batch = next(iter(train_pipeline(small, program.preparer(use="train"))))
    made = np.asarray(program.predictions(state.optimizer, state.rest, (batch.feed,))["click"])
    labels = np.asarray(batch.feed.columns["label"])
    expected = {"auc": metrics.AUC(), "normalized_entropy": metrics.NormalizedEntropy()}
    first, second = windows(clicks / "run")
    for name, metric in expected.items():
        value = metric.compute(metric.update(metric.init(), made, labels))
        assert first[name] == pytest.approx(value, rel=1e-5)
        assert second[name] != pytest.approx(value, rel=1e-5)


def test_resumed_windows(clicks):
    """A run that stops within a window logs the same numbers, and windows change no bit of the training."""
    plain = runs.train(given(clicks, "evaluate.windows=null"), stream=io.StringIO())
    whole = runs.train(given(clicks), clicks / "whole", stream=io.StringIO())
    assert_same_bits(whole.state.optimizer, plain.state.optimizer)
    saved = "train.checkpoint={every_steps: 1}"

    made = Loop._make

    def stops(self, call):
        if self.steps == 5:
            raise KeyboardInterrupt
        return made(self, call)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "_make", stops)
        with pytest.raises(KeyboardInterrupt):
            runs.train(given(clicks, saved), clicks / "run", stream=io.StringIO())
    resumed = runs.train(given(clicks, saved), clicks / "run", stream=io.StringIO(), resume=True)
    assert_same_bits(resumed.state.optimizer, whole.state.optimizer)
    without = [
        [{k: v for k, v in one.items() if k != "time"} for one in windows(clicks / name)] for name in ("run", "whole")
    ]
    assert without[0] == without[1]


def test_seconds_need_a_time(clicks):
    with pytest.raises(config.ConfigError, match="the column of the time"):
        given(clicks, "data.time_column=null")
