"""``sparrow serve`` as a process: it listens on loopback, ends open requests on SIGTERM, and exits with 0."""

import json
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

from sparrow import exports
from sparrow.cli import main
from sparrow.server import Limits
from sparrow.server.json_bodies import columns_of
from tests.exports.cases import WORDS, config, program_and_state, rows

DOCS = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()


def test_from_start_to_end(tmp_path):
    (tmp_path / "words.txt").write_text("".join(f"{word}\n" for word in WORDS))
    exports.export(*program_and_state(config("deepfm", tmp_path / "words.txt")), tmp_path / "export")
    command = [sys.executable, "-m", "sparrow.cli", "serve", str(tmp_path / "export"), "--port", "0"]
    process = subprocess.Popen([*command, "--batch-rows", "8"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr.readline() == "loaded deepfm of step 0, compiling for batches of up to 8 rows\n"
        ready = next(line for line in process.stderr if line.startswith("serving"))
        address = re.search(r"serving deepfm of step 0 on (http://127\.0\.0\.1:\d+) ", ready)[1]
        body = json.dumps({"rows": rows(20).to_pylist()}).encode()
        request = urllib.request.Request(f"{address}/predict", body, {"Content-Type": "application/json"})
        answers = []

        def ask():
            with urllib.request.urlopen(request) as answer:
                answers.append(json.load(answer))

        ask()
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        block, *_ = re.findall(r"```py\n(.*?)```", DOCS, re.DOTALL)
        scope = {"rows": rows}
        block = re.sub(r"pa\.table\(.*\)", "rows(20)", block)  # the columns of this model
        exec(block.replace("http://127.0.0.1:8080", address), scope)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "stopping" in process.stderr.read()
    finally:
        process.kill()
    assert len(answers) == 5
    assert all(len(answer["predictions"]["click"]) == 20 for answer in answers)
    assert scope["scores"]["click"].to_pylist() == answers[0]["predictions"]["click"]


def test_bodies_of_the_docs_are_read():
    bodies = re.findall(r"-d '(.*?)'", DOCS)
    assert len(bodies) == 2
    for body in bodies:
        assert columns_of(body.encode(), ["user", "item"], Limits())[0] == {"user": [1, 2], "item": [30, None]}


def test_mistakes_are_one_line(tmp_path, capsys):
    assert main(["serve", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err == f"sparrow: {tmp_path / 'nothing'}: there is no such folder\n"
