"""``sparrow serve`` under many faults at once: many clients, hostile bodies, silent sockets, reloads, killed workers.

    python -m benchmarks.server_soak [--seconds 120] [--clients 200] [--workers 2 --kill 30] [--without hostile silent]

Two models take turns in the served folder. Good requests are compared with the answers of both; hostile ones must be
refused in time. Each kind of client is a process of its own, with bodies that were made before. At the end: answers by
status, waits of good requests and of /health, refusals by kind of body, and the server's memory over time.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.serving import ARROW, JSON, Server, make_export, rows
from sparrow import serving
from sparrow.exports.folder import whole

TOLERANCE = 1e-5
ROWS = 8


def stream(*batches: Any) -> bytes:
    """Return the bytes of Arrow's stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write(batch)
    return bytes(sink.getvalue())


def hostile_bodies() -> dict[str, list[tuple[str, bytes]]]:
    """Return bodies that stand for more than they hold, are damaged, or are dear to read."""
    rng = np.random.default_rng(0)
    good = stream(rows(20))

    def damaged() -> bytes:
        body = bytearray(good)
        for at in rng.integers(0, len(body), 6):
            body[at] ^= 1 << int(rng.integers(0, 8))
        return bytes(body)

    def repeated(array: Any) -> bytes:
        return stream(*[pa.RecordBatch.from_arrays([array], ["category_1"])] * 200)

    large = pa.DictionaryArray.from_arrays(pa.array([0] * 40, pa.int8()), pa.array(["x" * 50_000]))
    values = pa.Array.from_buffers(pa.null(), 1_000_000, [None])
    ends = pa.py_buffer(struct.pack("<2i", 0, 1_000_000))
    nothing = pa.Array.from_buffers(pa.list_(pa.null()), 1, [None, ends], children=[values])
    keys = {"rows": [{"count_1": 1, **{f"k{n}": 1 for n in range(30_000)}}]}
    return {
        "damaged": [(ARROW, damaged()) for _ in range(50)],
        "dictionaries": [(ARROW, repeated(large))],
        "lists of nothing": [(ARROW, repeated(nothing))],
        "unknown keys": [(JSON, json.dumps(keys).encode())],
        "brackets": [(JSON, b'{"rows": [' + b"[" * 5000)],
        "long columns": [(JSON, b'{"columns": {"count_1": [' + b"1," * 500_000 + b"1]}}")],
        "noise": [(JSON, rng.bytes(2000)) for _ in range(20)],
    }


def quantiles(waits: list[float]) -> dict[str, float]:
    """Return the middle, the 99th percentile and the longest, in seconds."""
    return dict(
        zip(("p50", "p99", "longest"), np.quantile(waits or [0.0], [0.5, 0.99, 1]).round(3).tolist(), strict=True)
    )


async def good(url: str, end: float, clients: int, folders: list[Path], pause: float) -> dict[str, Any]:
    """Ask for predictions, and compare them with both models."""
    import aiohttp

    table = rows(2000)
    models = [serving.load(folder).predict(table)["click"] for folder in folders]
    assert not np.allclose(models[0], models[1], atol=TOLERANCE)
    bodies = [json.dumps({"rows": table.slice(at, ROWS).to_pylist()}).encode() for at in range(0, 1990, ROWS)]
    statuses: collections.Counter[str] = collections.Counter()
    by_model, waits = [0, 0, 0], []

    async def ask(session: Any, client: int) -> None:
        rng = np.random.default_rng(client)
        while time.time() < end:
            which, began = int(rng.integers(len(bodies))), time.monotonic()
            try:
                async with session.post("/predict", data=bodies[which], headers={"Content-Type": JSON}) as answer:
                    found = await answer.read()
            except aiohttp.ClientError:
                statuses["dropped"] += 1  # its connection was idle, and gave way
                continue
            waits.append(time.monotonic() - began)
            statuses[str(answer.status)] += 1
            if answer.status == 200:
                click, at = np.array(json.loads(found)["predictions"]["click"]), which * ROWS
                same = [np.allclose(click, made[at : at + ROWS], atol=TOLERANCE) for made in models]
                by_model[same.index(True) if any(same) else 2] += 1
            await asyncio.sleep(pause)

    async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(ask(session, client) for client in range(clients)))
    return {"statuses": statuses, "of the models, of none": by_model, "seconds": quantiles(waits)}


async def bad(url: str, end: float, clients: int) -> dict[str, Any]:
    """Send hostile bodies; some clients leave before the answer."""
    import aiohttp

    bodies = hostile_bodies()
    statuses: dict[str, collections.Counter[str]] = {kind: collections.Counter() for kind in bodies}
    longest = dict.fromkeys(bodies, 0.0)

    async def ask(client: int) -> None:
        rng = np.random.default_rng(10_000 + client)
        async with aiohttp.ClientSession(url) as session:
            while time.time() < end:
                kind = list(bodies)[int(rng.integers(len(bodies)))]
                form, body = bodies[kind][int(rng.integers(len(bodies[kind])))]
                began = time.monotonic()
                limit = aiohttp.ClientTimeout(0.05 if rng.random() < 0.1 else None)
                try:
                    async with session.post(
                        "/predict", data=body, headers={"Content-Type": form}, timeout=limit
                    ) as got:
                        await got.read()
                    statuses[kind][str(got.status)] += 1
                    longest[kind] = max(longest[kind], time.monotonic() - began)
                except TimeoutError:
                    statuses[kind]["left"] += 1
                except aiohttp.ClientError:
                    statuses[kind]["dropped"] += 1
                    await asyncio.sleep(0.1)

    await asyncio.gather(*(ask(client) for client in range(clients)))
    return {"statuses": statuses, "longest": {kind: round(value, 2) for kind, value in longest.items()}}


async def silent(url: str, end: float) -> None:
    """Open connections that say nothing, or half a line."""
    held: list[Any] = []
    while time.time() < end:
        try:
            held.append(await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2])))
            held[-1][1].write(b"POST /predict HTT" if len(held) % 2 else b"")
        except OSError:
            pass
        if len(held) > 1500:
            held.pop(0)[1].close()
        await asyncio.sleep(0.01)


async def health(url: str, end: float) -> dict[str, Any]:
    """Ask for /health over new connections."""
    import aiohttp

    waits, other = [], 0
    while time.time() < end:
        began = time.monotonic()
        try:
            async with aiohttp.ClientSession(url) as fresh, fresh.get("/health") as answer:
                other += answer.status != 200
        except aiohttp.ClientError:
            other += 1
        waits.append(time.monotonic() - began)
        await asyncio.sleep(0.2)
    return {"asked": len(waits), "not 200": other, "seconds": quantiles(waits)}


def run(sent: Any, name: str, role: Callable[..., Any], *given: Any) -> None:
    """Run a role in this process, and send what it returns."""
    sent.put((name, asyncio.run(role(*given))))


def workers_of(process: int) -> list[int]:
    """Return the processes that a process started."""
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def memory(process: int) -> int:
    """Return the resident megabytes of a process and of its workers."""
    total = 0
    for pid in (process, *workers_of(process)):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # killed meanwhile
            text = Path(f"/proc/{pid}/status").read_text()
            total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS"))
    return total // 1024


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--reload", type=float, default=10, help="seconds between two reloads")
    parser.add_argument("--workers", type=int, default=1, help="workers of the server")
    parser.add_argument("--kill", type=float, help="seconds between two kills of a worker")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between two requests of a client")
    parser.add_argument("--without", nargs="*", default=[], choices=["hostile", "silent", "reload", "good"])
    options = parser.parse_args()
    if options.kill and options.workers < 2:
        parser.error("--kill needs --workers 2 or more")
    with tempfile.TemporaryDirectory() as held:
        folders = [Path(held) / "one", Path(held) / "two"]
        for seed, folder in enumerate(folders):
            make_export(folder, seed)
        served = Path(held) / "served"
        shutil.copytree(folders[0], served)
        server = Server(served, *([] if options.workers == 1 else ["--workers", str(options.workers)]))
        drain = subprocess.Popen(
            [sys.executable, "-c", "import sys\nfor line in sys.stdin: pass"], stdin=server.process.stderr
        )
        few = max(options.clients // 20, 1)
        end = time.time() + options.seconds
        roles: dict[str, tuple[Any, ...]] = {
            "good": (good, server.url, end, options.clients - few, folders, options.pause),
            "hostile": (bad, server.url, end, few),
            "silent": (silent, server.url, end),
            "health": (health, server.url, end),
        }
        context = multiprocessing.get_context("spawn")
        sent: Any = context.Queue()
        wanted = {name: given for name, given in roles.items() if name not in options.without}
        clients = [context.Process(target=run, args=(sent, name, *given)) for name, given in wanted.items()]
        megabytes, reloads, next_reload = [memory(server.process.pid)], 0, time.time() + options.reload
        for client in clients:
            client.start()
        kills, next_kill = 0, time.time() + (options.kill or options.seconds + 1)
        while time.time() < end:
            time.sleep(1)
            if time.time() > next_kill and len(running := workers_of(server.process.pid)) == options.workers:
                os.kill(running[kills % options.workers], signal.SIGKILL)
                kills, next_kill = kills + 1, time.time() + options.kill
            megabytes.append(memory(server.process.pid))
            if "reload" not in options.without and time.time() > next_reload:
                reloads += 1
                with whole(served, overwrite=True) as partial:
                    shutil.copytree(folders[reloads % 2], partial, dirs_exist_ok=True)
                next_reload = time.time() + options.reload
        found: dict[str, Any] = dict(sent.get() for _ in clients)
        for client in clients:
            client.join()
        found |= {"reloads": reloads, "kills": kills, "megabytes": megabytes[:: max(len(megabytes) // 20, 1)]}
        print(json.dumps(found, indent=1))
        server.process.terminate()
        print("the server's exit code:", server.process.wait(), drain.wait())


if __name__ == "__main__":
    main()
