"""Deltas between complete checkpoints, and runs that go on with the next day's data."""

import io

import pytest

from sparrow import cli, config, runs
from sparrow.checkpoint.links import parent_of
from sparrow.data import ClickLog, write_clicks
from tests.runs.cases import NAMES, case
from tests.runs.test_dynamic import assert_same_state
from tests.runs.test_training import assert_same_bits

DELTAS = "train.checkpoint={every_steps: 5, keep: 4, deltas: {every_steps: 2, compact_after: 4}}"
GROWING = "[{kind: id, name: id_0, embedding_dim: 4, dynamic: {rows: 25, expire_steps: 3}}, " + ", ".join(
    f"{{kind: id, name: {name}, num_buckets: 20, embedding_dim: 4}}" for name in NAMES[1:]
)


def train(*overrides, folder=None, **options):
    stream = io.StringIO()
    made = runs.train(case(f"data.features={GROWING}]", "train.ema=0.9", *overrides), folder, stream=stream, **options)
    return made, stream.getvalue()


def test_a_run_resumed_from_a_delta_has_the_same_bits(tmp_path):
    whole, _ = train("train.steps=16")
    train(DELTAS, "train.steps=12", folder=tmp_path)
    assert parent_of(tmp_path / "checkpoints" / "12") is not None
    resumed, text = train(DELTAS, "train.steps=16", folder=tmp_path, resume=True)
    assert "resumed at step 12" in text
    for made in (resumed, runs.load(tmp_path)):
        assert_same_state(made.state.optimizer.embedding, whole.state.optimizer.embedding)
        assert_same_bits(
            (made.state.optimizer.params, made.state.optimizer.ema),
            (whole.state.optimizer.params, whole.state.optimizer.ema),
        )
    (tmp_path / "checkpoints" / "16" / "manifest.json").unlink()
    lines = []
    assert runs.load(tmp_path, log=lines.append).step == 15
    assert "checkpoint 16 is damaged and was skipped" in lines[0]


@pytest.fixture
def days(tmp_path):
    for day in (1, 2):
        write_clicks(ClickLog(2048, fields=3, ids=20, start=5000 * day, chunk_rows=512), tmp_path / f"{day}.parquet")
    return tmp_path


def test_the_next_day(days):
    """Steps, schedules, tables and optimizer go on; the data is read from its beginning; a repetition resumes."""

    def given(day, *overrides):
        path = f"data.train={{name: parquet, path: '{days / f'{day}.parquet'}'}}"
        rate = "train.dense_optimizer.learning_rate={name: linear, lr: 0.01, end: 0.0, steps: 40}"
        return case(path, rate, "train.steps=null", "train.epochs=1", "train.checkpoint={every_steps: 3}", *overrides)

    both = case(
        f"data.train={{name: parquet, path: ['{days / '1.parquet'}', '{days / '2.parquet'}']}}",
        "train.dense_optimizer.learning_rate={name: linear, lr: 0.01, end: 0.0, steps: 40}",
        "data.shuffle_rows=0",
        "train.steps=16",
    )
    whole = runs.train(both, stream=io.StringIO())
    order = "data.shuffle_rows=0"
    runs.train(given(1, order), days / "run", stream=io.StringIO())
    stream, calls = io.StringIO(), []

    def stop(step, results):
        calls.append(step)
        return step == 12

    interrupted = given(2, order, "evaluate.every_steps=4")
    runs.train(interrupted, days / "run", resume=True, new_data=True, stream=stream, watch=stop)
    assert calls == [12]
    assert "on new data from step 8 on" in stream.getvalue()
    stream = io.StringIO()
    made = runs.train(given(2, order), days / "run", resume=True, new_data=True, stream=stream)
    assert "resumed at step 12" in stream.getvalue()
    assert "on new data" not in stream.getvalue()
    assert made.steps == 16
    assert_same_bits(made.state.optimizer, whole.state.optimizer)
    with pytest.raises(config.ConfigError, match="--continue"):
        runs.train(given(1, order), days / "run", resume=True, stream=io.StringIO())


def test_the_command(days, capsys):
    (days / "config.json").write_text(config.dumps(case("train.steps=3"), "json"))
    train = ["train", str(days / "config.json"), "--quiet"]
    assert cli.main([*train, "--model-dir", str(days / "run")]) == 0
    other = f"data.train={{name: parquet, path: '{days / '2.parquet'}'}}"
    assert cli.main([*train, "--continue", str(days / "run"), other]) == 0
    assert runs.load(days / "run").step == 6
    assert cli.main([*train, "--continue", str(days / "none"), other]) != 0
    assert "holds no run to continue" in capsys.readouterr().err
