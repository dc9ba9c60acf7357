"""Several workers: one port, one sum of numbers, a killed one comes back, and SIGTERM ends all with 0."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from sparrow import exports
from sparrow.cli import main
from tests.exports.cases import WORDS, config, program_and_state, rows


def children(pid):
    """The processes that a process has started."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(number) for number in file.read().split()]


@pytest.mark.slow
def test_a_killed_worker_comes_back(tmp_path):
    (tmp_path / "words.txt").write_text("".join(f"{word}\n" for word in WORDS))
    exports.export(*program_and_state(config("deepfm", tmp_path / "words.txt")), tmp_path / "export")
    command = [sys.executable, "-m", "sparrow.cli", "serve", str(tmp_path / "export"), "--port", "0", "--workers", "2"]
    process = subprocess.Popen([*command, "--batch-rows", "8"], stderr=subprocess.PIPE, text=True)

    def until(text):
        return next(line for line in process.stderr if text in line)

    try:
        address = re.search(r"on (http://127\.0\.0\.1:\d+) ", until("2 workers are serving deepfm of step 0 on"))[1]
        body = json.dumps({"rows": rows(3).to_pylist()}).encode()

        def ask():
            request = urllib.request.Request(f"{address}/predict", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)

        assert len({json.dumps(ask()) for _ in range(20)}) == 1
        with urllib.request.urlopen(f"{address}/metrics") as answer:
            metrics = answer.read().decode()
        assert 'sparrow_requests_total{path="/predict",status="200"} 20.0' in metrics
        assert 'sparrow_batch_seconds_count{model="deepfm"} 20.0' in metrics
        first, second = children(process.pid)
        os.kill(first, signal.SIGKILL)
        until("ended by SIGKILL; it is started again in 1 s")
        for _ in range(20):
            ask()  # by the other one
        until("is ready again")
        assert first not in children(process.pid)
        assert second in children(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()


def test_a_port_that_is_taken_is_one_line(tmp_path, capsys):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        assert main(["serve", str(tmp_path / "nothing"), "--workers", "2", "--port", str(port)]) == 2
    assert f"127.0.0.1:{port}: cannot listen there: Address already in use" in capsys.readouterr().err
