"""`sparrow feed`: the speed of the feed alone, and its slowest stage."""

import contextlib
import json
import time

import pytest

from sparrow import config as configs
from sparrow.cli import main
from sparrow.data import ClickLog, write_clicks
from sparrow.runs import FeedTimes, Program
from sparrow.runs.feed_times import feed_seconds


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("feed")
    write_clicks(ClickLog(2000, fields=3, ids=100, chunk_rows=500), folder / "clicks.parquet")
    text = f"""
train:
  sparse_optimizer: {{name: sgd, learning_rate: 0.1}}
  dense_optimizer: {{optimizer: sgd, learning_rate: 0.1}}
  batch_size: 100
  epochs: 1
tasks: {{click: {{label: label, losses: [binary_cross_entropy]}}}}
data:
  train: {{name: parquet, path: {folder / "clicks.parquet"}}}
  features:
    - {{kind: id, name: id_0, num_buckets: 100, embedding_dim: 4}}
    - {{kind: id, name: id_1, num_buckets: 100, embedding_dim: 4}}
  threads: 2
  memory_ahead: 1000000
model:
  architecture: {{name: deepfm, deep: {{hidden_units: [4]}}}}
  groups: {{wide: [id_0, id_1], deep: [id_0, id_1]}}
"""
    path = folder / "config.yaml"
    path.write_text(text)
    return str(path)


def test_feed_names_every_stage_and_the_slowest(config, capsys):
    assert main(["feed", config]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "2,000 in" in lines[0]
    assert "2 threads" in lines[0]
    assert [line.split()[0] for line in lines[1:6]] == ["read", "decode", "convert", "pack", "copy"]
    assert lines[6].startswith("the slowest stage is ")


def test_feed_as_json(config, capsys):
    assert main(["feed", config, "data.threads=1", "--json", "--seconds", "5"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["examples"] == 2000
    assert found["threads"] == 1
    assert found["examples_per_second"] > 0
    assert found["stages"][found["slowest"]] == max(found["stages"].values())
    assert all(seconds > 0 for seconds in found["stages"].values())


def test_wrong_seconds_are_refused(config, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["feed", config, "--seconds", "-1"])
    assert stop.value.code == 2
    assert "must be a number of seconds above 0, got '-1'" in capsys.readouterr().err


def test_the_slowest_stage_gets_advice():
    times = FeedTimes(100, 2.0, 3, {"read": 0.1, "decode": 0.2, "convert": 0.1, "pack": 0.0, "copy": 0.0})
    assert times.examples_per_second == 50
    assert times.lines()[-1].startswith("the slowest stage is decode: raise data.threads")


def test_the_time_of_a_row_is_that_of_all_rows_that_were_made(config):
    """Also of rows that wait in a window: the first batch of a shuffled run waits for thousands of them."""
    settings = configs.load(config, ["data.shuffle_rows=1000"])
    preparer = Program.of(settings).preparer(use="train")
    pipeline = configs.train_pipeline(settings, preparer)
    with contextlib.closing(iter(pipeline)) as batches:
        next(batches)
        while not (pipeline.stages.rows >= 1000 and preparer.stages.rows >= 100):
            time.sleep(0.01)
        converting, packing = (sum(part.stages.seconds.values()) for part in (pipeline, preparer))
        assert feed_seconds(pipeline, preparer, converting + packing) <= converting / 1000 + packing / 100
        assert len([*batches]) == 19
    assert (pipeline.stages.rows, preparer.stages.rows) == (2000, 2000)
    assert feed_seconds(pipeline, preparer, 3.0) == pytest.approx(3.0 / 2000)


def test_plan_estimates_the_feed(config, capsys):
    assert main(["plan", config, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["feed_seconds_per_step"] > 0
    assert found["bound"].startswith(
        "the feed" if found["feed_seconds_per_step"] > found["seconds_per_step"] else "the step"
    )
