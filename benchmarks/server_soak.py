"""``sparrow serve`` under everything at once: many clients, hostile bodies, silent sockets, reloads, leaving clients.

python -m benchmarks.server_soak [--seconds 120] [--clients 200]

Good requests are compared with the model's own answers; hostile ones must be refused in time. At the end: the counts by
status, the longest wait of good requests and of /health, and the memory of the server at its start and at its end.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.serving import ARROW, JSON, Server, make_export, rows
from sparrow import serving
from sparrow.exports.folder import whole

TOLERANCE = 1e-5


def hostile(rng: np.random.Generator, good: bytes) -> tuple[str, bytes]:
    """Return a body that stands for more than it holds, is damaged, or is dear to read."""

    def stream(array: Any) -> bytes:
        sink = pa.BufferOutputStream()
        batch = pa.RecordBatch.from_arrays([array], ["category_1"])
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            for _ in range(200):
                writer.write_batch(batch)
        return bytes(sink.getvalue())

    kind = int(rng.integers(0, 7))
    if kind == 0:
        body = bytearray(good)
        for at in rng.integers(0, len(body), 6):
            body[at] ^= 1 << int(rng.integers(0, 8))
        return ARROW, bytes(body)
    if kind == 1:
        return ARROW, stream(pa.DictionaryArray.from_arrays(pa.array([0] * 40, pa.int8()), pa.array(["x" * 50_000])))
    if kind == 2:
        values = pa.Array.from_buffers(pa.null(), 1_000_000, [None])
        offsets = pa.py_buffer(struct.pack("<2i", 0, 1_000_000))
        return ARROW, stream(pa.Array.from_buffers(pa.list_(pa.null()), 1, [None, offsets], children=[values]))
    if kind == 3:
        return JSON, json.dumps({"rows": [{"count_1": 1, **{f"k{n}": 1 for n in range(30_000)}}]}).encode()
    if kind == 4:
        return JSON, b'{"rows": [' + b"[" * 5000
    if kind == 5:
        return JSON, b'{"columns": {"count_1": [' + b"1," * 500_000 + b"1]}}"
    return JSON, rng.bytes(2000)


async def soak(url: str, folder: Path, other: Path, seconds: float, clients: int) -> dict[str, Any]:
    """Send all kinds of requests for some time."""
    import aiohttp

    table = rows(2000)
    models = [serving.load(path).predict(table)["click"] for path in (folder, other)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.slice(0, 20))
    sound, end = bytes(sink.getvalue()), time.monotonic() + seconds
    statuses: dict[str, collections.Counter[int]] = {"good": collections.Counter(), "hostile": collections.Counter()}
    longest = {"good": 0.0, "hostile": 0.0, "health": 0.0}
    unequal = dropped = 0
    reloads = 0

    async def ask(session: Any, name: str, kind: str, body: bytes) -> Any:
        began = time.monotonic()
        async with session.post("/predict", data=body, headers={"Content-Type": kind}) as answer:
            found = await answer.read()
        longest[name] = max(longest[name], time.monotonic() - began)
        statuses[name][answer.status] += 1
        return json.loads(found) if answer.status == 200 and kind == JSON else None

    async def good(session: Any, client: int) -> None:
        nonlocal unequal, dropped
        rng = np.random.default_rng(client)
        while time.monotonic() < end:
            start = int(rng.integers(0, 1990))
            body = json.dumps({"rows": table.slice(start, 8).to_pylist()}).encode()
            try:
                found = await ask(session, "good", JSON, body)
            except aiohttp.ClientError:
                dropped += 1  # its connection was idle, and gave way
                continue
            if found is not None:
                click = np.array(found["predictions"]["click"])
                unequal += not any(np.allclose(click, made[start : start + 8], atol=TOLERANCE) for made in models)
            await asyncio.sleep(0.05)

    async def bad(session: Any, client: int) -> None:
        rng = np.random.default_rng(10_000 + client)
        while time.monotonic() < end:
            try:
                await ask(session, "hostile", *hostile(rng, sound))
            except aiohttp.ClientError:
                await asyncio.sleep(0.1)

    async def silent() -> None:
        held = []
        while time.monotonic() < end:
            try:
                held.append(await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2])))
                held[-1][1].write(b"POST /predict HTT" if len(held) % 2 else b"")
            except OSError:
                pass
            if len(held) > 1500:
                held.pop(0)[1].close()
            await asyncio.sleep(0.01)

    async def health(session: Any) -> None:
        while time.monotonic() < end:
            began = time.monotonic()
            async with aiohttp.ClientSession(url) as fresh, fresh.get("/health") as answer:
                assert answer.status == 200
            longest["health"] = max(longest["health"], time.monotonic() - began)
            await asyncio.sleep(0.2)

    async def reload() -> None:
        nonlocal reloads
        import shutil

        served = folder.parent / "served"
        while time.monotonic() < end:
            await asyncio.sleep(10)
            with whole(served, overwrite=True) as partial:
                shutil.copytree((folder, other)[reloads % 2], partial, dirs_exist_ok=True)
            reloads += 1

    async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0)) as session:
        few = max(clients // 20, 1)
        await asyncio.gather(
            *(good(session, n) for n in range(clients - few)),
            *(bad(session, n) for n in range(few)),
            silent(),
            health(session),
            reload(),
        )
    return {
        "statuses": {name: dict(counts) for name, counts in statuses.items()},
        "longest_seconds": {name: round(value, 2) for name, value in longest.items()},
        "unequal": unequal,
        "dropped": dropped,
        "reloads": reloads,
    }


def memory(process: int) -> float:
    """Return the resident megabytes of a process."""
    text = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmRSS"))


def main() -> None:
    """Run it."""
    import shutil

    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--clients", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        make_export(folder / "one")
        shutil.copytree(folder / "one", folder / "two")
        shutil.copytree(folder / "one", folder / "served")
        server = Server(folder / "served")
        before = memory(server.process.pid)
        found = asyncio.run(soak(server.url, folder / "one", folder / "two", options.seconds, options.clients))
        found["megabytes"] = [round(before), round(memory(server.process.pid))]
        print(json.dumps(found, indent=1))
        server.stop()


if __name__ == "__main__":
    main()
