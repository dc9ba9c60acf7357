"""Processes on one machine: ended together, with the message of the one that failed."""

import os
import signal
import subprocess
import sys
import time

from sparrow.processes import ELSEWHERE, supervise


def run(*programs):
    """The exit code, and the lines, of one process for each program."""
    lines = []
    code = supervise(len(programs), lambda start: [sys.executable, "-c", programs[start.number]], lines.append)
    return code, lines


def test_all_end_well():
    assert run("pass", "pass", "pass") == (0, [])


def test_the_message_of_the_one_that_failed():
    fails = "import sys; print('the disk is full', file=sys.stderr); sys.exit(1)"
    waits = f"import sys, time; time.sleep(1); sys.exit({ELSEWHERE})"
    began = time.monotonic()
    code, lines = run(waits, fails, waits)
    assert time.monotonic() - began < 15
    assert code == 1
    assert lines == ["the disk is full", "process 1 ended with code 1; all processes were ended"]


def test_a_process_that_ends_because_of_another_is_not_blamed():
    fails = "import sys, time; time.sleep(1); print('the reason', file=sys.stderr); sys.exit(1)"
    code, lines = run("import time; time.sleep(3)", f"raise SystemExit({ELSEWHERE})", fails)
    assert code == 1
    assert lines[0] == "the reason"


def test_one_that_is_stopped(monkeypatch):
    """It is named before JAX counts it as lost, and aborts the others with a dump of their stacks."""
    monkeypatch.setattr("sparrow.processes.supervising.STOPPED", 0.5)
    stops = "import os, signal, time; os.kill(os.getpid(), signal.SIGSTOP); time.sleep(60)"
    began = time.monotonic()
    code, lines = run("import time; time.sleep(60)", stops)
    assert time.monotonic() - began < 15
    assert code == 1
    assert lines == ["process 1 was stopped by a signal for 0.5 s; all processes were ended"]


def test_one_that_was_stopped_for_a_moment(monkeypatch):
    monkeypatch.setattr("sparrow.processes.supervising.STOPPED", 5.0)
    stops = """
import os, signal, subprocess, sys, time
goes_on = f"import os, signal, time; time.sleep(0.5); os.kill({os.getpid()}, signal.SIGCONT)"
subprocess.Popen([sys.executable, "-c", goes_on])
os.kill(os.getpid(), signal.SIGSTOP)
"""
    assert run("pass", stops) == (0, [])


def test_one_that_was_killed(monkeypatch):
    monkeypatch.setattr("sparrow.processes.supervising.PATIENCE", 1.0)
    code, lines = run("import time; time.sleep(60)", "import os; os.kill(os.getpid(), 9)")
    assert code == 128 + signal.SIGKILL
    assert lines == ["process 1 was ended by SIGKILL; all others were ended"]


def test_signals_are_passed_on(tmp_path):
    program = f"""
import os, pathlib, signal, sys
signal.signal(15, lambda *_: sys.exit(143))
pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()
signal.pause()
"""
    code = f"""
import sys
from sparrow.processes import supervise
sys.exit(supervise(2, lambda start: [sys.executable, "-c", {program!r}], print))
"""
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        end = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 2:
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 143


def test_children_end_with_their_supervisor():
    child = """
import os, time
from sparrow.processes import end_with_parent
end_with_parent()
print(os.getpid(), flush=True)
time.sleep(60)
"""
    code = f"""
import sys
from sparrow.processes import supervise
supervise(1, lambda start: [sys.executable, "-c", {child!r}], print)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        number = int(process.stdout.readline())
        process.kill()
        process.wait()
        end = time.monotonic() + 20
        while time.monotonic() < end and _lives(number):
            time.sleep(0.1)
        assert not _lives(number)


def _lives(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True
