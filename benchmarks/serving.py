"""Serving over HTTP beside ``model.predict`` in process: latency of one row, throughput, and a million rows compared.

python -m benchmarks.serving [--rows 1000000] [--clients 16] [--seconds 10] [--load ROUNDS]

The model is DeepFM with Criteo's 39 columns (examples/deepfm_criteo.yaml), untrained: speed does not depend on values.
The server is a process of its own, and so are its clients, on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sparrow import config, exports, runs, serving
from sparrow.exports.folder import whole

ROOT = Path(__file__).parent.parent
JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"
POOL, LARGEST = 20_000, 1000


def make_export(folder: Path, seed: int = 0, tables: Any = None, dim: int | None = None) -> None:
    changes = ["data.train.path=none", "data.evaluate=null", f"train.seed={seed}"]
    if dim is not None:
        changes += [f"data.features[{place}].embedding_dim={dim}" for place in range(13, 39)]
    loaded = config.load(ROOT / "examples" / "deepfm_criteo.yaml", changes)
    program = runs.Program.of(loaded)
    exports.export(program, program.init(), folder, tables=tables)


def rows(count: int) -> Any:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {f"count_{i}": rng.geometric(0.1, count).astype(float) for i in range(1, 14)}
    columns |= {f"category_{i}": [f"{x:08x}" for x in rng.integers(0, 2**32, count)] for i in range(1, 27)}
    return pa.table(columns)


def times_of(call: Callable[[int], Any], seconds: float) -> np.ndarray:
    """Return the milliseconds of each call."""
    taken = []
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        call(len(taken))
        taken.append(1000 * (time.perf_counter() - begin))
    return np.array(taken)


def shown(name: str, times: Sequence[float] | np.ndarray, per_second: float | None = None) -> None:
    p50, p99 = np.quantile(times, [0.5, 0.99])
    speed = len(times) * 1000 / np.sum(times) if per_second is None else per_second
    print(f"{name:46} p50 {p50:7.2f} ms   p99 {p99:7.2f} ms   {speed:9,.0f} requests/s", flush=True)


class Server:
    """``sparrow serve`` in a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "sparrow.cli", "serve", str(folder), "--port", "0", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.lines: list[str] = []
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"on (http://\S+) ", line):
                self.url = found[1]
                print(line.strip())
                return
        raise SystemExit("".join(self.lines))

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.stderr is not None
        print("the server's log:", self.process.stderr.read().strip().replace("\n", " | "))
        print("the server's exit code:", self.process.wait())


def json_rows(table: Any) -> list[str]:
    return [json.dumps(row) for row in table.to_pylist()]


def one_by_one(url: str, bodies: list[bytes], seconds: float, sent: Any) -> None:
    """Send one row at a time over one connection, from a process of its own."""
    import http.client

    connection = http.client.HTTPConnection(url.removeprefix("http://"))

    def ask(i: int) -> None:
        connection.request("POST", "/predict", bodies[i % len(bodies)], {"Content-Type": JSON})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()

    times_of(ask, 1.0)
    sent.put(times_of(ask, seconds).tolist())


async def _clients(url: str, count: int, work: Callable[[Any, int], Any]) -> None:
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, connector=connector) as session:
        await asyncio.gather(*(work(session, i) for i in range(count)))


def together(url: str, bodies: list[bytes], clients: int, seconds: float, sent: Any) -> None:
    """Send one row at a time from each of some clients at once."""
    times: list[float] = []

    async def work(session: Any, client: int) -> None:
        end = time.perf_counter() + seconds
        at = client
        while (begin := time.perf_counter()) < end:
            async with session.post(
                "/predict", data=bodies[at % len(bodies)], headers={"Content-Type": JSON}
            ) as answer:
                assert answer.status == 200
                await answer.read()
            times.append(1000 * (time.perf_counter() - begin))
            at += clients

    asyncio.run(_clients(url, clients, work))
    sent.put(times)


def paced(url: str, bodies: list[bytes], rate: float, seconds: float, sent: Any) -> None:
    """Send one row at a time, at random moments, ``rate`` in a second: requests do not wait for each other."""
    times: list[float] = []
    rng = np.random.default_rng(0)
    moments = np.cumsum(rng.exponential(1 / rate, int(rate * seconds)))

    async def work(session: Any, _: int) -> None:
        began = time.perf_counter()

        async def ask(at: int, moment: float) -> None:
            await asyncio.sleep(max(0.0, began + moment - time.perf_counter()))
            begin = time.perf_counter()
            async with session.post(
                "/predict", data=bodies[at % len(bodies)], headers={"Content-Type": JSON}
            ) as answer:
                assert answer.status == 200
                await answer.read()
            times.append(1000 * (time.perf_counter() - begin))

        await asyncio.gather(*(ask(at, moment) for at, moment in enumerate(moments)))

    asyncio.run(_clients(url, 1, work))
    sent.put(times)


def under_load(folder: Path, bodies: list[bytes], clients: int, seconds: float, rounds: int) -> None:
    """Show tables of float32 and int8 in turns: one client, many, and random moments at 70 % of what many get."""
    servers = {}
    for name, tables in {"float32": None, "int8": "int8"}.items():
        make_export(folder / name, tables=tables, dim=32)
        servers[name] = Server(folder / name)
        size = (folder / name / "tables.safetensors").stat().st_size
        print(f"{name}: tables of {size:,} bytes")
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in servers}
    try:
        for _ in range(rounds):
            for name, server in servers.items():
                alone = in_process(one_by_one, server.url, bodies, seconds)
                many = len(in_process(together, server.url, bodies, clients, seconds)) / seconds
                p50, p99 = np.quantile(in_process(paced, server.url, bodies, 0.7 * many, seconds), [0.5, 0.99])
                found[name].append((many / (len(alone) * 1000 / np.sum(alone)), p99 / p50, many))
                times = f"{found[name][-1][0]:5.2f} x one client; at 70 %: p99 / p50 {p99 / p50:5.2f}"
                print(f"{name:8} {clients} clients {many:7.0f}/s, {times}", flush=True)
    finally:
        for server in servers.values():
            server.stop()
    ratios = [int8[2] / float32[2] for float32, int8 in zip(found["float32"], found["int8"], strict=True)]
    print(f"int8 / float32, requests/s: median {np.median(ratios):.2f} of {len(ratios)} rounds in turns")


def compare(url: str, table: Any, expected: np.ndarray, total: int, clients: int, sent: Any) -> None:
    """Send batches of 1 to `LARGEST` rows, by turns in JSON and Arrow, and compare every answer."""
    texts = json_rows(table)
    left = [total]
    counts = {"requests": 0, "rows": 0, "unequal": 0, "other bits": 0, "errors": 0}
    times: list[float] = []

    async def work(session: Any, client: int) -> None:
        rng = np.random.default_rng(client)
        while left[0] > 0:
            size = int(min(rng.integers(1, LARGEST + 1), left[0]))
            left[0] -= size
            start = int(rng.integers(0, len(table) - size + 1))
            if counts["requests"] % 2:
                kind, body = ARROW, _arrow(table.slice(start, size))
            else:
                kind, body = JSON, ('{"rows": [' + ",".join(texts[start : start + size]) + "]}").encode()
            counts["requests"] += 1
            begin = time.perf_counter()
            async with session.post("/predict", data=body, headers={"Content-Type": kind}) as answer:
                found = await answer.read()
            times.append(1000 * (time.perf_counter() - begin))
            if answer.status != 200:
                counts["errors"] += 1
                print(found[:200])
                continue
            scores = (
                np.asarray(pa.ipc.open_stream(found).read_all()["click"])
                if kind == ARROW
                else np.asarray(json.loads(found)["predictions"]["click"], np.float32)
            )
            wanted = expected[start : start + size]
            counts["rows"] += len(scores)
            counts["unequal"] += int(scores.shape != wanted.shape or not np.allclose(scores, wanted, rtol=0, atol=1e-6))
            counts["other bits"] += int((scores != wanted).sum())

    began = time.perf_counter()
    asyncio.run(_clients(url, clients, work))
    sent.put((counts, times, time.perf_counter() - began))


def _arrow(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def in_process(function: Callable[..., None], *arguments: Any, meanwhile: Callable[[], None] = lambda: None) -> Any:
    """Run a client in a process of its own, and return its result."""
    context = multiprocessing.get_context("spawn")
    sent: Any = context.Queue()
    process = context.Process(target=function, args=(*arguments, sent))
    process.start()
    meanwhile()
    result = sent.get()
    process.join()
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement of latency")
    parser.add_argument("--load", type=int, metavar="ROUNDS", help="only: int8 beside float32, one client and many")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sparrow-serving-"))
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    try:
        if options.load:
            some = [f'{{"rows": [{text}]}}'.encode() for text in json_rows(rows(500))]
            under_load(folder, some, options.clients, options.seconds, options.load)
            return
        make_export(folder / "export")
        table = rows(POOL)
        model = serving.load(folder / "export")
        expected = model.predict(table)["click"]
        singles = [{name: [value] for name, value in row.items()} for row in table.slice(0, 500).to_pylist()]
        model.predict(singles[0])
        local = times_of(lambda i: model.predict(singles[i % len(singles)]), options.seconds)
        shown("one row, model.predict in process", local)
        for size in (100, 1000):
            parts = [table.slice(start, size) for start in range(0, POOL - size, size)]
            model.predict(parts[0])
            some = times_of(lambda i, parts=parts: model.predict(parts[i % len(parts)]), options.seconds / 4)
            shown(f"{size} rows of Arrow, model.predict in process", some)
        bodies = [f'{{"rows": [{text}]}}'.encode() for text in json_rows(table.slice(0, 500))]
        server = Server(folder / "export")
        try:
            over_http = in_process(one_by_one, server.url, bodies, options.seconds)
            shown("one row, HTTP, one client", over_http)
            print(f"one row: p50 over HTTP / p50 in process = {np.median(over_http) / np.median(local):.2f}")
            many = in_process(together, server.url, bodies, options.clients, options.seconds)
            shown(f"one row, HTTP, {options.clients} clients", many, len(many) / options.seconds)

            def reload() -> None:
                time.sleep(8)
                with whole(folder / "export", overwrite=True) as partial:
                    shutil.copytree(folder / "export", partial, dirs_exist_ok=True)

            counts, times, seconds = in_process(
                compare, server.url, table, expected, options.rows, options.clients, meanwhile=reload
            )
            shown(f"1 to {LARGEST} rows, {options.clients} clients", times, len(times) / seconds)
            print(f"{counts['rows']:,} rows in {seconds:.0f} s, {counts['rows'] / seconds:,.0f} rows/s: {counts}")
        finally:
            server.stop()
        print(f"load average {os.getloadavg()[0]:.1f}")
        if counts["errors"] or counts["unequal"] or counts["rows"] != options.rows:
            raise SystemExit("some answers were errors, or other than the model's")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
