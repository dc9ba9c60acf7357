"""Serving over HTTP beside ``model.predict`` in process: latency of one row, throughput, and a million rows compared.

python -m benchmarks.serving [--rows 1000000] [--clients 16] [--seconds 10] [--load ROUNDS [--onnx]]

The model is DeepFM with Criteo's 39 columns (examples/deepfm_criteo.yaml), untrained: speed does not depend on values.
The server is a process of its own, and so are its clients, on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
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
from typing import Any, NamedTuple

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
    """``sparrow serve``, or another command, in a process of its own."""

    def __init__(self, folder: Path, *options: str, command: Sequence[str] = ()) -> None:
        serve = [sys.executable, "-m", "sparrow.cli", "serve", str(folder), "--port", "0"]
        command = [*(command or serve), *options]
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

    def processor(self) -> float:
        """Return the processor seconds of the process up to now."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.stderr is not None
        print("the server's log:", self.process.stderr.read().strip().replace("\n", " | "))
        print("the server's exit code:", self.process.wait())


def json_rows(table: Any) -> list[str]:
    return [json.dumps(row) for row in table.to_pylist()]


async def _clients(url: str, count: int, work: Callable[[Any, int], Any]) -> None:
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, connector=connector) as session:
        await asyncio.gather(*(work(session, i) for i in range(count)))


class Client(asyncio.Protocol):
    """One connection that sends requests made before, each a complete string of bytes, and waits for each answer."""

    def __init__(self, answered: Callable[[Client], None]) -> None:
        self._answered, self._held = answered, b""
        self.began = 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def ask(self, request: bytes, began: float | None = None) -> None:
        self.began = time.perf_counter() if began is None else began
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._held += data
        head = self._held.find(b"\r\n\r\n")
        if head < 0 or len(self._held) < head + 4 + int(re.search(rb"Content-Length: (\d+)", self._held)[1]):  # type: ignore[index]
            return
        assert self._held.startswith(b"HTTP/1.1 200"), self._held
        self._held = b""
        self._answered(self)

    def connection_lost(self, exc: Exception | None) -> None:
        pass


class Sent(NamedTuple):
    """Milliseconds of each request, and the processor seconds of the client for all of them."""

    times: list[float]
    processor: float


def requests_of(url: str, bodies: list[bytes]) -> list[bytes]:
    head = f"POST /predict HTTP/1.1\r\nHost: {url.removeprefix('http://')}\r\nContent-Type: {JSON}\r\n"
    return [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]


async def _connect(url: str, answered: Callable[[Client], None]) -> Client:
    host, port = url.removeprefix("http://").split(":")
    _, client = await asyncio.get_running_loop().create_connection(lambda: Client(answered), host, int(port))
    return client


def together(url: str, bodies: list[bytes], clients: int, seconds: float, sent: Any) -> None:
    """Send one row at a time from each of some clients at once: the next request after the answer to the last."""
    requests = itertools.cycle(requests_of(url, bodies))

    async def work() -> Sent:
        loop, times, left = asyncio.get_running_loop(), [], {clients}
        done, end = loop.create_future(), time.perf_counter() + seconds

        def answered(client: Client) -> None:
            now = time.perf_counter()
            times.append(1000 * (now - client.began))
            if now < end:
                client.ask(next(requests))
                return
            left.add(left.pop() - 1)
            if left == {0}:
                done.set_result(None)

        connected = [await _connect(url, answered) for _ in range(clients)]
        began, end = time.process_time(), time.perf_counter() + seconds
        for client in connected:
            client.ask(next(requests))
        await done
        return Sent(times, time.process_time() - began)

    sent.put(asyncio.run(work()))


def paced(url: str, bodies: list[bytes], rate: float, seconds: float, sent: Any) -> None:
    """Send one row at a time, at random moments, ``rate`` in a second, and measure from these moments on.

    A request that finds all connections busy, or the client late, waits, and its wait counts.
    """
    requests = itertools.cycle(requests_of(url, bodies))
    moments = np.cumsum(np.random.default_rng(0).exponential(1 / rate, int(rate * seconds))).tolist()

    async def work() -> Sent:
        loop, times, idle = asyncio.get_running_loop(), [], []
        done = loop.create_future()

        def answered(client: Client) -> None:
            times.append(1000 * (time.perf_counter() - client.began))
            idle.append(client)
            if len(times) == len(moments):
                done.set_result(None)

        idle += [await _connect(url, answered) for _ in range(256)]
        began, start, at = time.process_time(), time.perf_counter(), 0
        while at < len(moments):
            while idle and at < len(moments) and start + moments[at] <= time.perf_counter():
                idle.pop().ask(next(requests), start + moments[at])
                at += 1
            # Never a loop without a pause: where all connections are busy, it would take a core from the server.
            left = 0.0 if at == len(moments) else start + moments[at] - time.perf_counter()
            await asyncio.sleep(max(0.0005, left))
        await done
        return Sent(times, time.process_time() - began)

    sent.put(asyncio.run(work()))


class Load(NamedTuple):
    """A server in one round: requests a second of one client and of many, and latencies of random moments at 70 %."""

    alone: float
    many: float
    p50: float
    p99: float

    def __str__(self) -> str:
        ratio = f"{self.many / self.alone:5.2f} x one client ({self.alone:.0f}/s)"
        return f"{self.many:6.0f}/s, {ratio}; at 70 %: p50 {self.p50:.2f} ms, p99 / p50 {self.p99 / self.p50:5.2f}"


def load_of(server: Server, bodies: list[bytes], clients: int, seconds: float) -> Load:
    """Measure a server: one client, many, and random moments at 70 % of what many get."""
    alone = len(in_process(together, server.url, bodies, 1, seconds).times) / seconds
    before = server.processor()
    together_: Sent = in_process(together, server.url, bodies, clients, seconds)
    count = len(together_.times)
    own, theirs = (1e6 * used / count for used in (server.processor() - before, together_.processor))
    print(f"  processor time of a request, {clients} clients: server {own:.0f} us, clients {theirs:.0f} us")
    p50, p99 = np.quantile(in_process(paced, server.url, bodies, 0.7 * count / seconds, seconds).times, [0.5, 0.99])
    return Load(alone, count / seconds, float(p50), float(p99))


def under_load(folder: Path, bodies: list[bytes], clients: int, seconds: float, rounds: int, onnx: bool) -> None:
    """Show tables of float32 and int8 in turns, and with ``onnx`` the same model by ONNX Runtime."""
    servers = {}
    for name, tables in {"float32": None, "int8": "int8"}.items():
        make_export(folder / name, tables=tables, dim=32)
        servers[name] = Server(folder / name)
        size = (folder / name / "tables.safetensors").stat().st_size
        print(f"{name}: tables of {size:,} bytes")
    for name, options in {"onnx": (), "onnx-batch": ("--batch-ms", "2")}.items() if onnx else ():
        command = [sys.executable, "-m", "benchmarks.serving_onnx", str(folder / "float32"), *options]
        servers[name] = Server(folder, command=command)
        print("".join(servers[name].lines).strip())
    in_turns(servers, bodies, clients, seconds, rounds)


def in_turns(servers: dict[str, Any], bodies: list[bytes], clients: int, seconds: float, rounds: int) -> None:
    """Measure servers by turns, print each round and the medians, beside the first server, and stop them."""
    found: dict[str, list[Load]] = {name: [] for name in servers}
    try:
        for number in range(rounds):
            for name in list(servers)[:: 1 if number % 2 else -1]:
                found[name].append(load_of(servers[name], bodies, clients, seconds))
                print(f"{name:12} {clients} clients {found[name][-1]}", flush=True)
    finally:
        for server in servers.values():
            server.stop()
    first = next(iter(found.values()))
    for name, loads in found.items():
        print(f"{name:12} median of {rounds} rounds: {Load(*(float(np.median(x)) for x in zip(*loads, strict=True)))}")
        shares = [(own.many / other.many, own.alone / other.alone) for own, other in zip(loads, first, strict=True)]
        many, alone = np.median(shares, axis=0)
        print(f"{name:12} requests/s / {next(iter(found))}: {many:.2f} with {clients} clients, {alone:.2f} with one")


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
    parser.add_argument("--onnx", action="store_true", help="with --load: ONNX Runtime behind aiohttp beside them")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sparrow-serving-"))
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    try:
        if options.load:
            some = [f'{{"rows": [{text}]}}'.encode() for text in json_rows(rows(500))]
            under_load(folder, some, options.clients, options.seconds, options.load, options.onnx)
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
            over_http = in_process(together, server.url, bodies, 1, options.seconds).times
            shown("one row, HTTP, one client", over_http)
            print(f"one row: p50 over HTTP / p50 in process = {np.median(over_http) / np.median(local):.2f}")
            many = in_process(together, server.url, bodies, options.clients, options.seconds).times
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
