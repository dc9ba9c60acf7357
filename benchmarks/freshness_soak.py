"""A stream with kills, for an hour: no event is lost, each answer comes from one version, and memory does not grow.

    python -m benchmarks.freshness_soak FOLDER [--minutes 60] [--kill-minutes 45] [--kills 210] [--events 2000]

26 tables of 100,000 rows and dimension 16. One process writes files of clicks, `sparrow train` follows them with delta
checkpoints and delta exports, `sparrow serve` follows the export, a client asks for the same 16 rows again and again.
There are two such pairs. In the first ``--kill-minutes`` the trainer or the server of one is killed ``--kills`` times,
also while it starts, and started again. The other pair is left alone: its memory and the age of its answers are those
of an hour.

* Nothing lost: after the end of the stream both checkpoints have the same bits and every event, and both servers
  answer the same.
* No mixture: another process loads the export, applies the same deltas with nothing beside them, and writes what
  each step predicts; each answer of the server is compared with the predictions of its step.

Everything is written to FOLDER: log.txt, and result.json at the end.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.following import NAMES, base, events
from benchmarks.freshness import memory, produce
from sparrow import config, runs, serving
from sparrow.checkpoint import rows_of

PROBES = 16
CLOSE = 2e-6
"""Predictions of one step agree to this: batches of other sizes round in another order."""


class Child:
    """A command that is started again after each kill."""

    def __init__(self, folder: Path, name: str, command: list[str]) -> None:
        self.name, self._command = name, [sys.executable, "-m", "sparrow.cli", *command]
        self._folder = folder
        self.starts, self.kills, self.ended_by_itself = 0, 0, 0
        self.start()

    def start(self) -> None:
        """Start it; its lines go to a file of their own."""
        self.starts += 1
        self.lines = self._folder / f"{self.name}.{self.starts:04}.log"
        more: list[str] = []
        if self.name == "trainer" and self.starts > 1:  # killed before its first checkpoint, it has nothing to resume
            more = ["--resume" if any((self._folder / "run" / "checkpoints").glob("[0-9]*")) else "--overwrite"]
        with self.lines.open("wb") as lines:
            self.process = subprocess.Popen([*self._command, *more], stdout=lines, stderr=lines)

    def kill(self) -> None:
        """Kill it, and start it again."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.kills += 1
        self.lines.unlink()
        self.start()

    def look(self) -> bool:
        """Start it again where it ended by itself, a fault unless the stream is over; return whether it did."""
        if self.process.poll() is None:
            return False
        self.ended_by_itself += 1
        self.start()
        return True


class Pair:
    """A trainer, a server of its export, and a client, in a folder of their own."""

    def __init__(self, folder: Path, train: dict[str, Any], port: int) -> None:
        folder.mkdir()
        self.folder, self.export = folder, folder / "export"
        export = {"every_seconds": 2, "folder": str(self.export), "full_after": 100}
        (folder / "config.yaml").write_text(config.dumps(base(train, 1024, export=export)))
        saving = "train.checkpoint={every_minutes: 5, keep: 2, deltas: {every_seconds: 3, compact_after: 50}}"
        given = ["train", f"{folder}/config.yaml", saving, "--model-dir", f"{folder}/run"]
        self.trainer = Child(folder, "trainer", given)
        while not (self.export / "export.json").exists():
            time.sleep(0.2)
        self.server = Child(folder, "server", ["serve", str(self.export), "--port", str(port)])
        self.client = Client(port, folder / "answers.jsonl")
        self.client.start()

    @property
    def children(self) -> list[Child]:
        """The trainer and the server."""
        return [self.trainer, self.server]

    def sizes(self) -> list[int]:
        """Return the resident megabytes of trainer and server, and the private ones of each."""
        kinds = ("VmRSS", "RssAnon")
        return [round(memory(child.process.pid, kind)) for child in self.children for kind in kinds]

    def finish(self) -> int:
        """Wait for the end of the trainer and for answers of its last version; return the exit code of the trainer."""
        code = self.trainer.process.wait()
        last = step_of(self.folder / "run")
        until = time.time() + 120
        while self.client.step != last and time.time() < until:
            time.sleep(0.5)
        self.client.is_over = True
        self.client.join()
        self.server.process.terminate()
        self.server.process.wait()
        return code


def step_of(run: Path) -> int:
    """Return the step of the last checkpoint."""
    return max(int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdecimal())


def probes() -> dict[str, Any]:
    """Return the rows that are asked for."""
    rows = events(np.random.default_rng(5), PROBES)
    return {name: rows[name] for name in NAMES}


def judge(export: str, file: str) -> None:
    """Write the predictions of each version of an export, one line each, from a model that nothing else uses."""
    folder, rows, model, identity = Path(export), probes(), None, None
    with Path(file).open("a", buffering=1) as lines:
        while True:
            try:
                now = (folder / "export.json").stat().st_ino
                if model is None or now != identity:
                    model, identity = serving.load(folder), now
                elif (delta := model.next_delta(folder)) is not None:
                    model.prepared(delta)()
                else:
                    time.sleep(0.05)
                    continue
                made = model.predict(rows)["click"].tolist()
                lines.write(json.dumps({"step": model.version.step, "click": made}) + "\n")
            except Exception as error:  # an export that is being replaced
                lines.write(json.dumps({"error": f"{type(error).__name__}: {error}"[:200]}) + "\n")
                model = None
                time.sleep(0.2)


class Client(threading.Thread):
    """Asks the server ten times a second, over a new connection after each kill.

    Attributes:
      ages: the time of each answer, and the age of the newest event of its version then.
      last, step: the predictions of the last answer, and the step of its version.
    """

    def __init__(self, port: int, file: Path) -> None:
        super().__init__(daemon=True)
        rows = probes()
        self._body = json.dumps({"rows": [{name: int(rows[name][i]) for name in NAMES} for i in range(PROBES)]})
        self._port, self._file = port, file
        self.good, self.refused, self.wrong, self.is_over = 0, 0, 0, False
        self.ages: list[tuple[float, float]] = []
        self.last: list[float] = []
        self.step = -1

    def run(self) -> None:
        """Write the versions and predictions of answers, where they are others than those before."""
        connection, before = None, ""
        with self._file.open("a", buffering=1) as lines:
            while not self.is_over:
                try:
                    connection = connection or http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
                    connection.request("POST", "/predict", self._body, {"Content-Type": "application/json"})
                    answer = connection.getresponse()
                    text = answer.read()
                except (OSError, http.client.HTTPException):
                    self.refused, connection = self.refused + 1, None
                    time.sleep(0.1)
                    continue
                if answer.status != 200:
                    self.wrong += 1
                    lines.write(json.dumps({"error": text.decode()[:300]}) + "\n")
                    time.sleep(0.1)
                    continue
                self.good += 1
                if (newest := answer.getheader("X-Sparrow-Time")) is not None:
                    self.ages.append((time.time(), time.time() - float(newest)))
                self.step = int((answer.getheader("X-Sparrow-Version") or "").split(".")[0])
                held = json.loads(text)
                self.last = numbers(held)
                line = json.dumps({"step": self.step, "answer": held})
                if line != before:
                    lines.write(line + "\n")
                    before = line
                time.sleep(0.1)

    def age(self, begin: float, end: float) -> list[float]:
        """Return the median and the 99th percentile of the ages of answers between two times, in seconds."""
        ages = [age for at, age in self.ages if begin <= at < end]
        return [round(float(value), 2) for value in np.quantile(ages, [0.5, 0.99])] if ages else []


def numbers(answer: Any) -> list[float]:
    """Return the predictions in an answer."""
    found = [float(text) for text in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", json.dumps(answer))]
    assert len(found) == PROBES, answer
    return found


def compared(answers: Path, judged: Path) -> dict[str, Any]:
    """Compare the answers of the server with the predictions of their steps."""
    truth: dict[int, Any] = {}
    changed, mistakes, unknown, seen, disagree = [], 0, 0, 0, 0
    for line in judged.read_text().splitlines():
        own = json.loads(line)
        if "error" in own:
            continue
        new, old = np.array(own["click"]), truth.get(own["step"])
        if old is not None and np.abs(old - new).max() > CLOSE:
            disagree += 1  # a step that was made again after a kill has other bits
        truth[own["step"]] = new
    steps = sorted(truth)
    changed = [float(np.abs(truth[a] - truth[b]).max()) for a, b in itertools.pairwise(steps)]
    for line in answers.read_text().splitlines():
        own = json.loads(line)
        if "error" in own:
            continue
        seen += 1
        if own["step"] not in truth:
            unknown += 1
        elif np.abs(np.array(numbers(own["answer"])) - truth[own["step"]]).max() > CLOSE:
            mistakes += 1
    return {
        "versions_judged": len(truth),
        "steps_with_two_results": disagree,
        "answers_that_differ_from_the_one_before": seen,
        "mixtures": mistakes,
        "answers_of_versions_not_judged": unknown,
        "least_change_between_versions": min(changed, default=None),
    }


def state_of(folder: Path) -> dict[str, Any]:
    """Return the arrays of the last checkpoint, by name."""
    run = runs.load(folder)
    optimizer = run.state.optimizer
    found: dict[str, Any] = {
        str(key): np.concatenate([np.asarray(block) for block in rows.blocks()])
        for key, rows in rows_of(run.program.embedder, optimizer.embedding).items()
    }
    leaves = jax.tree_util.tree_leaves_with_path((optimizer.params, optimizer.step))
    return found | {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--kill-minutes", type=float, default=45)
    parser.add_argument("--kills", type=int, default=210)
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--port", type=int, default=18777)
    given = parser.parse_args()
    folder = given.folder.absolute()
    (folder / "clicks").mkdir(parents=True)
    source = {
        "name": "follow",
        "path": f"{folder}/clicks/*.parquet",
        "poll_seconds": 0.1,
        "end_marker": f"{folder}/END",
    }
    spawn, log = multiprocessing.get_context("spawn"), folder / "log.txt"
    began = time.time()
    until = began + 60 * given.minutes
    writer = spawn.Process(target=produce, args=(f"{folder}/clicks", given.events, 1.0, until), daemon=True)
    writer.start()
    killed, alone = (Pair(folder / name, source, given.port + at) for at, name in enumerate(("killed", "alone")))
    watch = spawn.Process(target=judge, args=(str(killed.export), f"{folder}/judged.jsonl"), daemon=True)
    watch.start()
    rng, written, sizes = random.Random(0), 0.0, []
    due, kills_end, last_kill = time.time() + 20, began + 60 * given.kill_minutes, 0.0
    while writer.is_alive():
        time.sleep(0.2)
        now = time.time()
        for pair in (killed, alone):
            for child in pair.children:
                if child.look():
                    _say(log, f"the {child.name} of {pair.folder.name} ended by itself")
        left = given.kills - killed.trainer.kills - killed.server.kills
        if left > 0 and now >= due:
            rng.choice(killed.children).kill()
            last_kill = now
            due = now + rng.expovariate(left / max(kills_end - now, 1.0))
        if now - written > 15:
            client = killed.client
            sizes.append([round(now - began), *killed.sizes(), *alone.sizes()])
            counts = f"kills {killed.trainer.kills} + {killed.server.kills}  answers {client.good}"
            ages = [pair.client.age(written, now) for pair in (killed, alone)]
            _say(log, f"{counts}  refused {client.refused}  wrong {client.wrong}  ages {ages}  MB {sizes[-1]}")
            written = now
    (folder / "END").touch()
    codes = [pair.finish() for pair in (killed, alone)]
    watch.terminate()
    _say(log, f"the stream is over, the trainers ended with {codes}")
    jax.config.update("jax_platforms", "cpu")
    with_kills, once = (state_of(pair.folder / "run") for pair in (killed, alone))
    rows = given.events * len(os.listdir(folder / "clicks"))
    caught_up = until - 300
    result = {
        "kills": {"trainer": killed.trainer.kills, "server": killed.server.kills},
        "ended_by_itself": [child.ended_by_itself for pair in (killed, alone) for child in pair.children],
        "exit_codes": codes,
        "events": rows,
        "steps": [pair.client.step for pair in (killed, alone)],
        "steps_of_all_events": -(-rows // 1024),
        "answers": killed.client.good,
        "refused_while_down": killed.client.refused,
        "other_answers": killed.client.wrong,
        "answers_alone": alone.client.good,
        "refused_and_other_answers_alone": [alone.client.refused, alone.client.wrong],
        "most_difference_of_the_last_answers": float(np.abs(np.subtract(killed.client.last, alone.client.last)).max()),
        "age_seconds_p50_p99": {
            "alone, all": alone.client.age(0, until),
            "alone, last 5 minutes": alone.client.age(caught_up, until),
            "killed, while killed": killed.client.age(0, last_kill),
            "killed, last 5 minutes": killed.client.age(caught_up, until),
        },
        **compared(killed.folder / "answers.jsonl", folder / "judged.jsonl"),
        "arrays": len(once),
        "arrays_that_differ": [n for n in once if n not in with_kills or not np.array_equal(once[n], with_kills[n])],
        "megabytes": sizes,
    }
    (folder / "result.json").write_text(json.dumps(result, indent=1))
    _say(log, json.dumps({name: value for name, value in result.items() if name != "megabytes"}))


def _say(log: Path, text: str) -> None:
    with log.open("a") as lines:
        lines.write(f"{time.strftime('%H:%M:%S')}  {text}\n")


if __name__ == "__main__":
    main()
