"""Runs that begin again where a process is lost: as many processes, or fewer, and never after a mistake or a stop."""

import re
import signal
import subprocess
import sys
import time

import pytest

from sparrow.processes import Restarts, supervise

STEP = "from sparrow.processes import supervised, tell_progress; supervised(int(sys.argv[1]))"
DIES = "os.kill(os.getpid(), 9)"


def run(tmp_path, body, count=2, most=3, newest=lambda: None, fewer=lambda _: None):
    """The exit code, the lines, and the (number, count, resumes) of each process that was started.

    ``body`` is run with ``number``, ``count`` and ``start``, from 0 on.
    """
    lines, starts = [], []

    def command(start):
        starts.append((start.number, start.count, start.resumes))
        begun = sum(number == start.number for number, _, _ in starts) - 1
        given = f"import os, sys, time; number, count, start = {start.number}, {start.count}, {begun}\n{body}"
        return [sys.executable, "-c", given, str(start.progress)]

    code = supervise(count, command, lines.append, Restarts(most, newest, fewer))
    return code, lines, starts


def test_a_killed_process_begins_all_again(tmp_path, monkeypatch):
    monkeypatch.setattr("sparrow.processes.supervising.PATIENCE", 0.5)
    saved = tmp_path / "saved"
    body = f"""
{STEP}
if start == 0 and number == 0:
    tell_progress(7)
    open({str(saved)!r}, "w").close()
if start == 0 and number == 1:
    while not os.path.exists({str(saved)!r}):
        time.sleep(0.01)
    {DIES}
if start == 0:
    time.sleep(60)
if number == 0:
    tell_progress(6)
    time.sleep(0.5)
"""
    code, lines, starts = run(tmp_path, body, newest=lambda: (5, saved.stat().st_mtime))
    assert code == 0
    assert starts == [(0, 2, False), (1, 2, False), (0, 2, True), (1, 2, True)]
    assert lines[0] == "process 1 was ended by SIGKILL; all others were ended"
    lost = r"2 steps and \d+\.\d s since the checkpoint of step 5 are lost; restart 1 of 3, with 2 processes"
    assert re.fullmatch(lost, lines[1])
    assert lines[2].startswith("the run goes on with step 6, ")
    assert lines[2].endswith(" s after the failure")


def test_without_a_checkpoint_it_begins_from_the_start(tmp_path):
    code, lines, starts = run(tmp_path, f"if start == 0: {DIES}", count=1)
    assert (code, starts) == (0, [(0, 1, False), (0, 1, False)])
    assert re.fullmatch(r"0 steps and \d+\.\d s since the start are lost; restart 1 of 3, with 1 process", lines[1])


def test_restarts_end(tmp_path):
    code, lines, starts = run(tmp_path, DIES, count=1, most=2)
    assert (code, len(starts)) == (128 + signal.SIGKILL, 3)
    assert sum("restart" in line for line in lines) == 2


@pytest.mark.parametrize("code", [2, 130, 143])
def test_mistakes_and_stops_are_final(tmp_path, code):
    assert run(tmp_path, f"sys.exit({code})", count=1)[0::2] == (code, [(0, 1, False)])


def test_fewer_take_over_where_as_many_came_to_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr("sparrow.processes.supervising.PATIENCE", 0.5)
    body = f"if count > 2 and number == 2: {DIES}"
    code, lines, starts = run(tmp_path, body, 4, newest=lambda: (5, 1.0), fewer=lambda count: 2 if count == 4 else None)
    assert code == 0
    assert [count for number, count, _ in starts if number == 0] == [4, 4, 2]
    assert lines[-1].endswith("restart 2 of 3, with 2 processes")


def test_a_signal_ends_it_for_good(tmp_path):
    code = f"""
import pathlib, sys
from sparrow.processes import Restarts, supervise
program = "import pathlib, signal, sys; pathlib.Path({str(tmp_path / "begun")!r}).touch(); signal.pause()"
sys.exit(supervise(1, lambda start: [sys.executable, "-c", program], print, Restarts(9, lambda: None)))
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 60
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)  # the process has no handler: it dies, as by any other signal
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
        assert "restart" not in process.stdout.read()
