"""Training on a source that grows: the bits of a fixed list, resuming, signals, and what is due while it waits."""

import io
import json
import os
import signal
import threading
import time

import pytest

from sparrow import config, runs
from sparrow.data import ClickLog, write_clicks
from sparrow.runs.errors import Interrupted
from tests.runs.cases import case
from tests.runs.test_training import assert_same_bits

ROWS = 1024


def put(folder, number):
    folder.mkdir(exist_ok=True)
    partial = folder / f".{number}.parquet"
    write_clicks(ClickLog(ROWS, fields=3, ids=20, start=5000 * number, chunk_rows=512), partial)
    partial.rename(folder / f"{number}.parquet")


def followed(folder, *overrides, **options):
    source = {"name": "follow", "path": f"{folder}/*.parquet", "poll_seconds": 0.02, **options}
    fixed = [f"data.train={json.dumps(source)}", "data.evaluate=null", "data.shuffle_rows=0", "train.steps=null"]
    return case(*fixed, "train.epochs=1", *overrides)


def train(given, folder=None, **options):
    stream = io.StringIO()
    return runs.train(given, folder, stream=stream, **options), stream.getvalue()


def until(check, seconds=60):
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if check():
            return True
        time.sleep(0.02)
    return False


def test_a_followed_run_has_the_bits_of_a_fixed_list_also_when_resumed(tmp_path):
    data = tmp_path / "data"
    for number in range(3):
        put(data, number)
    paths = json.dumps([str(data / f"{number}.parquet") for number in range(3)])
    fixed = case(
        *(f"data.train={{name: parquet, path: {paths}}}", "data.evaluate=null", "data.shuffle_rows=0"),
        *("train.steps=null", "train.epochs=1"),
    )
    whole, _ = train(fixed)
    followed_all, _ = train(followed(data, end_idle_seconds=0.2))
    assert followed_all.steps == whole.steps == 12
    assert_same_bits(followed_all.state, whole.state)
    train(followed(data, "train.epochs=null", "train.steps=5", end_idle_seconds=0.2), tmp_path / "run")
    assert len((tmp_path / "run" / "stream.jsonl").read_text().splitlines()) >= 2
    made, text = train(followed(data, end_idle_seconds=0.2), tmp_path / "run", resume=True)
    assert "resumed at step 5" in text
    assert_same_bits(made.state, whole.state)


def test_the_end_of_a_stream_is_not_the_end_of_the_run(tmp_path):
    """A stream that ended by time goes on with what came since, without the rows before."""
    put(tmp_path / "data", 0)
    given = followed(tmp_path / "data", end_idle_seconds=0.2)
    train(given, tmp_path / "run")
    put(tmp_path / "data", 1)
    made, text = train(given, tmp_path / "run", resume=True)
    assert made.steps == 8
    assert "resumed at step 4" in text


def test_exports_and_checkpoints_go_out_while_nothing_comes(tmp_path):
    put(tmp_path / "data", 0)
    given = followed(
        *(tmp_path / "data", "export={every_seconds: 0.3}"),
        "train.checkpoint={every_steps: 100, deltas: {every_seconds: 0.3}}",
        end_marker=str(tmp_path / "end"),
    )
    export, seen = tmp_path / "run" / "export", []

    def watch():
        seen.append(until(lambda: _exported(export) == 4 and (tmp_path / "run" / "checkpoints" / "4").is_dir()))
        (tmp_path / "end").touch()

    thread = threading.Thread(target=watch)
    thread.start()
    made, _ = train(given, tmp_path / "run")
    thread.join()
    assert (made.steps, seen) == (4, [True])


def _exported(export):
    """Return the step of the newest version of an export."""
    files = sorted(export.glob("deltas/*/delta.json")) or list(export.glob("export.json"))
    try:
        return json.loads(files[-1].read_text())["step"] if files else None
    except (OSError, ValueError, KeyError):
        return None


def test_a_signal_saves_and_ends_a_run_that_waits(tmp_path):
    put(tmp_path / "data", 0)
    metrics = tmp_path / "run" / "metrics.jsonl"

    def stop():
        until(lambda: metrics.exists() and '"step": 4' in metrics.read_text())
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Interrupted):
        train(followed(tmp_path / "data", "train.log_every_steps=1"), tmp_path / "run")
    thread.join()
    assert runs.load(tmp_path / "run").step == 4
    put(tmp_path / "data", 1)
    made, _ = train(followed(tmp_path / "data", end_idle_seconds=0.2), tmp_path / "run", resume=True)
    assert made.steps == 8


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("train.epochs=2", "no second epoch"),
        ("data.split={share: 0.1}", "split and histories need all rows"),
        ("data.evaluate={name: follow, path: a.csv}", "evaluate cannot be a source that grows"),
        ("data.dead_letters=letters", "bad_rows: skip"),
    ],
)
def test_fields_that_do_not_fit(tmp_path, override, why):
    put(tmp_path / "data", 0)
    with pytest.raises((config.ConfigError, ValueError), match=why):
        train(followed(tmp_path / "data", override, end_idle_seconds=0.2))
