"""Several processes on one source that grows: the bits of one process, one signal ends all, other numbers resume."""

import json
import os
import shutil
import signal
import subprocess
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow.checkpoint import saved_steps
from sparrow.data import ClickLog, write_clicks
from tests.runs.groups import LIMIT, command, content, same, train, written
from tests.runs.test_processes import children, wait_for

pytestmark = pytest.mark.slow
ROWS = 120


def put(folder, number):
    folder.mkdir(exist_ok=True)
    partial = folder / f".{number}.parquet"
    write_clicks(ClickLog(ROWS, fields=3, ids=20, start=5000 * number, chunk_rows=50), partial)
    table = pq.read_table(partial)
    times = [3600 * number + 30 * row - (7200 if row == 3 else 0) for row in range(ROWS)]
    pq.write_table(table.append_column("time", pa.array(times)), partial, row_group_size=50)
    partial.rename(folder / f"{number}.parquet")


def stream(folder, *overrides, **options):
    source = {"name": "follow", "path": f"{folder}/*.parquet", "poll_seconds": 0.05, **options}
    late = "data.late={after_seconds: 1800, policy: dead_letter}"
    return (
        *(f"data.train={json.dumps(source)}", "data.evaluate=null", "data.shuffle_rows=0", "data.time_column=time"),
        *("train.steps=null", "train.epochs=1", late, f"data.dead_letters={folder}/letters.jsonl", *overrides),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three files, and the run of one process over them."""
    folder = tmp_path_factory.mktemp("streams")
    os.environ.setdefault("SPARROW_TEST_CACHE", str(tmp_path_factory.mktemp("cache")))
    for number in range(3):
        put(folder / "all", number)
    train(folder / "one", *stream(folder / "all", end_idle_seconds=1), processes=1, devices=2)
    return folder


def test_two_processes_give_the_bits_of_one(folder, tmp_path):
    shutil.copytree(folder / "all", tmp_path / "data", ignore=shutil.ignore_patterns("*.jsonl"))
    output = train(tmp_path / "two", *stream(tmp_path / "data", end_idle_seconds=1), processes=2, devices=2)
    assert saved_steps(tmp_path / "two" / "checkpoints") == saved_steps(folder / "one" / "checkpoints")
    for step in saved_steps(folder / "one" / "checkpoints"):
        assert same(content(tmp_path / "two", step), content(folder / "one", step)), step
    assert "2 rows came more than 1800 s late, and were left out" in output
    letters = (tmp_path / "data" / "letters.jsonl").read_text().splitlines()
    assert len(letters) == len((folder / "all" / "letters.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("processes", [1, 2])
def test_one_signal_ends_all_that_wait_and_the_run_goes_on(folder, tmp_path, processes):
    data, run_folder = tmp_path / "data", tmp_path / "run"
    for number in range(2):
        put(data, number)
    path = written(tmp_path / "config", *stream(data), "train.mesh.data=2")
    given, held = command("train", path, "--model-dir", run_folder, processes=2)
    process = subprocess.Popen(given, env=held, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: process.poll() is not None or len(_journal(run_folder)) == 3)
    time.sleep(1)
    assert process.poll() is None, process.communicate()[0]
    os.kill(children(process)[1], signal.SIGTERM)
    output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 143, output
    assert saved_steps(run_folder / "checkpoints")[0] == 4, output  # 238 rows in batches of 48
    put(data, 2)
    options = ["--resume"]
    train(run_folder, *stream(data, end_idle_seconds=1), processes=processes, devices=2, options=options)
    assert same(content(run_folder), content(folder / "one"))


def _journal(folder):
    try:
        return (folder / "stream.jsonl").read_text().splitlines()
    except OSError:
        return []
