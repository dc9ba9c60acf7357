"""Runs that wait for their data: how long is reported, Ctrl-C ends the waiting, no thread stays."""

import io
import json
import os
import signal
import threading
import time

import pytest

from sparrow import runs
from sparrow.data.sources.clicks import ClickReader
from tests.runs.cases import case


def own_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("sparrow-data")]


def test_ctrl_c_while_a_reader_hangs(tmp_path, monkeypatch):
    go, read, calls, before = threading.Event(), ClickReader.read, [], set(own_threads())

    def hanging(self, chunk, bad_rows):
        calls.append(chunk)
        if len(calls) > 6:  # in the second epoch
            go.wait(60)
        return read(self, chunk, bad_rows)

    monkeypatch.setattr(ClickReader, "read", hanging)
    monkeypatch.setattr("sparrow.feed.crew.PATIENCE", 0.1)
    config = case("data.evaluate=null", "data.threads=3", "data.ahead=2")

    default = signal.getsignal(signal.SIGINT)

    def press():
        while len(calls) <= 6 or signal.getsignal(signal.SIGINT) is default:  # until the run listens
            time.sleep(0.05)
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    try:
        with pytest.warns(RuntimeWarning, match="reading data does not end"), pytest.raises(runs.Interrupted):
            runs.train(config, tmp_path / "run", stream=io.StringIO())
    finally:
        go.set()
        presser.join()
    for thread in set(own_threads()) - before:
        thread.join(10)
    monkeypatch.undo()
    trained = runs.train(config, tmp_path / "run", resume=True, stream=io.StringIO())
    assert trained.steps == 40
    assert set(own_threads()) <= before


def test_waiting_is_in_the_metrics(tmp_path):
    runs.train(case("data.evaluate=null"), tmp_path / "run", stream=io.StringIO())
    entries = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    shares = [entry["waiting_for_data"] for entry in entries if entry["kind"] == "train"]
    assert shares
    assert all(0 <= share <= 1 for share in shares)
