"""Checkpoints, deltas and exports by event time: after the same steps, also in a run that is resumed."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config, runs, serving
from sparrow.checkpoint.links import parent_of
from sparrow.data import ClickLog, write_clicks
from tests.runs.cases import case
from tests.runs.test_training import assert_same_bits

FIRST = 1_767_225_600
"""The begin of an hour."""


@pytest.fixture
def clicks(tmp_path):
    """Eight batches in four files: two minutes between two examples of 256, and some that come an hour late."""
    write_clicks(ClickLog(2048, fields=3, ids=20, chunk_rows=512), tmp_path / "plain.parquet")
    table = pq.read_table(tmp_path / "plain.parquet")
    times = FIRST + 600 * np.arange(2048) // 256
    times[::300] -= 3600
    table = table.append_column("time", pa.array(1000 * times))
    (tmp_path / "clicks").mkdir()
    for number in range(4):
        pq.write_table(table.slice(512 * number, 512), tmp_path / "clicks" / f"{number}.parquet", row_group_size=256)
    return tmp_path


def given(folder, *overrides, follows=True):
    path = str(folder / "clicks")
    source = {"name": "parquet", "path": path}
    if follows:
        source = {"name": "follow", "path": path + "/*.parquet", "poll_seconds": 0.02, "end_idle_seconds": 0.2}
    return case(
        *(f"data.train={json.dumps(source)}", "data.evaluate=null", "data.shuffle_rows=0", "data.time_column=time"),
        *("data.time_unit=ms", "train.steps=null", "train.epochs=1", *overrides),
    )


def train(given, folder, **options):
    stream = io.StringIO()
    return runs.train(given, folder, stream=stream, **options), stream.getvalue()


def saved(folder):
    """The steps of checkpoints, and those among them that are deltas."""
    steps = sorted(int(path.name) for path in (folder / "checkpoints").iterdir() if path.name.isdecimal())
    return steps, [step for step in steps if parent_of(folder / "checkpoints" / str(step)) is not None]


BY_EVENT = "train.checkpoint={every_event_minutes: 30, keep: 20, deltas: {every_event_minutes: 10}}"


@pytest.mark.parametrize(("follows", "first", "deltas"), [(True, 3, [4, 6, 7]), (False, 2, [3, 5, 6, 8])])
def test_saved_when_the_watermark_passes(clicks, follows, first, deltas):
    """A batch of ten minutes: its rows are behind the watermark of a stream when the next ones come.

    Each 30 minutes all is saved, after 10 and 20 what changed; the first save of a session is complete.
    """
    made, _ = train(given(clicks, BY_EVENT, follows=follows), clicks / "run")
    whole, _ = train(given(clicks, "train.checkpoint={every_steps: 100}", follows=follows), clicks / "whole")
    assert_same_bits(made.state.optimizer.params, whole.state.optimizer.params)
    assert saved(clicks / "run") == (list(range(first, 9)), deltas)


def test_a_resumed_run_saves_after_the_same_steps(clicks):
    train(given(clicks, BY_EVENT), clicks / "whole")
    limited = given(clicks, BY_EVENT, "train.epochs=null", "train.steps=4")
    train(limited, clicks / "run")
    train(given(clicks, BY_EVENT), clicks / "run", resume=True)
    assert saved(clicks / "run")[0] == saved(clicks / "whole")[0]


def test_exports_by_event_time(clicks):
    _, text = train(given(clicks, "export={every_event_minutes: 30}"), clicks / "run")
    assert text.count("export step") == 1
    assert len(list((clicks / "run" / "export" / "deltas").iterdir())) == 1


def test_late_rows_are_in_the_log(clicks):
    late = "data.late={after_seconds: 1200, policy: drop}"
    _, text = train(given(clicks, late, "evaluate.windows={seconds: 3600}"), clicks / "run")
    assert "6 rows came more than 1200 s late, and were left out" in text
    lines = [json.loads(line) for line in (clicks / "run" / "metrics.jsonl").read_text().splitlines()]
    windows = [line for line in lines if line["kind"] == "window"]
    assert windows[-1]["late_rows"] == 6
    assert sum(line["examples"] for line in windows) == 2048 - 6


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (["data.time_column=null", BY_EVENT], "train.checkpoint.every_event_minutes needs data.time_column"),
        (["data.time_column=null", "data.late={after_seconds: 1}"], "late needs time_column"),
        (["data.late={after_seconds: 1, policy: dead_letter}"], "needs dead_letters"),
        (["data.train={name: parquet, path: a}", "data.late={after_seconds: 1}"], "late needs a source that grows"),
    ],
)
def test_fields_that_do_not_fit(clicks, overrides, why):
    with pytest.raises(config.ConfigError, match=why):
        given(clicks, *overrides)


def test_a_complete_export_has_the_time_of_the_newest_event(clicks):
    train(given(clicks, "export={every_steps: 100}"), clicks / "run")
    version = serving.load(clicks / "run" / "export").version
    assert (version.delta, version.time) == (0, FIRST + 600 * 2047 // 256)
