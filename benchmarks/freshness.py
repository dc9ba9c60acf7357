"""Time from an event to an answer that has learned from it: files, training, deltas, a server, on one machine.

    python -m benchmarks.freshness [--seconds 120] [--events 20000] [--every 2] [--file-seconds 0.5]

26 tables of 100,000 rows and dimension 16. One process writes a file of clicks every half second, `sparrow train`
follows them and exports deltas, `sparrow serve` follows the export. A client sends requests to it and to a server of
the same base export without deltas, in turns of five seconds beside the same training. Printed are the time from an
event to the first answer whose version has it (p50, p99, of all events), the latency of both servers, and the memory of
trainer and server over time, once the backlog of the start is trained on.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.following import NAMES, base, events, write
from benchmarks.serving import Server
from sparrow import config
from sparrow.files import proc_bytes

TURN = 5.0


def produce(folder: str, per_second: int, every: float, until: float) -> None:
    """Write a file of clicks every ``every`` seconds, with the times at which they came."""
    rng, number, began = np.random.default_rng(1), 0, time.time()
    while time.time() < until:
        rows = events(rng, int(per_second * every))
        due = began + (number + 1) * every
        time.sleep(max(0.0, due - time.time()))
        now = time.time()
        rows["time"] = ((now - every + np.arange(len(rows["label"])) / per_second) * 1000).astype(np.int64)
        write(Path(folder) / f"{number:08}.parquet", rows)
        number += 1


def ask(connection: http.client.HTTPConnection, body: bytes) -> tuple[float, str | None]:
    """Send a request; return its latency, and the event time of the version that answered."""
    began = time.perf_counter()
    connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise SystemExit(f"the server answered {answer.status}: {text[:200]!r}")
    return time.perf_counter() - began, answer.getheader("X-Sparrow-Time")


def catch_up(connection: http.client.HTTPConnection, body: bytes, seconds: float, patience: float) -> None:
    """Wait until answers know events of ``seconds`` ago: the start compiles and exports while events come."""
    began = time.time()
    while time.time() - began < patience:
        _, newest = ask(connection, body)
        if newest is not None and time.time() - float(newest) < seconds:
            print(f"caught up after {time.time() - began:.0f} s")
            return
        time.sleep(0.2)
    print(f"did not catch up in {patience:.0f} s")


def memory(process: int, kind: str = "VmRSS") -> float:
    """Return the resident megabytes of a process, or of its private memory ("RssAnon"); 0 where it has ended."""
    return proc_bytes(f"/proc/{process}/status").get(kind, 0) / 1e6


def processor_seconds(process: int) -> float:
    """Return the processor time of a process, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def latencies_of_events(seen: list[tuple[float, float]], per_second: int) -> Any:
    """Return the time from each event to the first answer that knew it; ``seen``: times of answers and versions."""
    found = []
    for (_, before), (at, newest) in itertools.pairwise(seen):
        if newest > before:
            times = np.linspace(before, newest, max(int((newest - before) * min(per_second, 1000)), 2))[1:]
            found.append(at - times)
    return np.concatenate(found) if found else np.array([np.nan])


def line(name: str, values: Any) -> str:
    """Return the quantiles of some seconds, in milliseconds."""
    p50, p99 = np.quantile(values, [0.5, 0.99]) * 1000
    return f"{name:24} p50 {p50:9.1f} ms  p99 {p99:9.1f} ms  of {len(values):,}"


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--every", type=float, default=2.0)
    parser.add_argument("--file-seconds", type=float, default=0.5)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--patience", type=float, default=120, help="seconds to catch up with the time of the start")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "clicks").mkdir()
        source = {"name": "follow", "path": f"{folder}/clicks/*.parquet", "poll_seconds": 0.05}
        source["cut_seconds"] = 1.5 * given.file_seconds  # no padded batch while files come
        made = base(source, given.batch, export={"every_seconds": given.every, "folder": str(folder / "export")})
        (folder / "config.yaml").write_text(config.dumps(made))
        writer = multiprocessing.get_context("spawn").Process(
            target=produce,
            args=(str(folder / "clicks"), given.events, given.file_seconds, time.time() + given.seconds + 3600),
            daemon=True,
        )
        writer.start()
        command = [
            sys.executable,
            "-m",
            "sparrow.cli",
            "train",
            str(folder / "config.yaml"),
            "--model-dir",
            str(folder / "run"),
        ]
        trainer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while not (folder / "export" / "export.json").exists():
            if trainer.poll() is not None:
                assert trainer.stderr is not None
                raise SystemExit(trainer.stderr.read())
            time.sleep(0.1)
        shutil.copytree(folder / "export", folder / "still", ignore=shutil.ignore_patterns("deltas"))
        servers = {"with deltas": Server(folder / "export"), "without deltas": Server(folder / "still")}
        try:
            _measure(given, servers, {"trainer": trainer.pid, "writer of clicks": writer.pid})
        finally:
            trainer.terminate()
            for server in servers.values():
                server.process.terminate()
            writer.terminate()
            trainer.wait(60)


def _measure(given: argparse.Namespace, servers: dict[str, Server], others: dict[str, Any]) -> None:
    who = others | {f"server {name}": own.process.pid for name, own in servers.items()} | {"client": os.getpid()}
    rng = np.random.default_rng(2)
    rows = events(rng, 256)
    bodies = [json.dumps({"rows": [{name: int(rows[name][i]) for name in NAMES}]}).encode() for i in range(256)]
    connections = {name: http.client.HTTPConnection(own.url.removeprefix("http://")) for name, own in servers.items()}
    catch_up(connections["with deltas"], bodies[0], 2 * given.every + 2, given.patience)
    spent = {name: -processor_seconds(own) for name, own in who.items()}
    waits: dict[str, list[float]] = {name: [] for name in servers}
    seen: list[tuple[float, float]] = []
    sizes: list[tuple[float, float]] = []
    began, number = time.time(), 0
    while time.time() - began < given.seconds:
        name = list(servers)[int((time.time() - began) / TURN) % 2]
        wait, newest = ask(connections[name], bodies[number % 256])
        waits[name].append(wait)
        if name != "with deltas":
            _, newest = ask(connections["with deltas"], bodies[number % 256])
        if newest is not None:
            seen.append((time.time(), float(newest)))
        if time.time() - began >= len(sizes) * min(60.0, given.seconds / 12):
            sizes.append((memory(others["trainer"]), memory(servers["with deltas"].process.pid)))
            passed, known = time.time() - began, 0.0 if newest is None else time.time() - float(newest)
            sys.stderr.write(f"{passed:5.0f} s  trainer {sizes[-1][0]:.0f} MB  server {sizes[-1][1]:.0f} MB")
            sys.stderr.write(f"  newest event {known:.1f} s ago\n")
        number += 1
        time.sleep(0.005)
    print(f"{given.events:,} events/s, deltas every {given.every:g} s, load {os.getloadavg()[0]:.1f}")
    print(line("event to served", latencies_of_events(seen, given.events)))
    for name, own in waits.items():
        print(line(f"request {name}", own))
    print(f"versions seen {len({version for _, version in seen})}")
    for name, own in who.items():
        used = (spent[name] + processor_seconds(own)) / (time.time() - began)
        print(f"processor of {name:24} {used:6.2f} cores  {1e6 * used / given.events:7.1f} us an event")
    for name, values in zip(("trainer", "server"), zip(*sizes, strict=True), strict=True):
        print(f"memory of {name:8} MB  " + " ".join(f"{value:.0f}" for value in values))


if __name__ == "__main__":
    main()
