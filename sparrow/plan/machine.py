"""What this machine has: memory, and how fast it moves. Measured in a second or two, on arrays beyond the caches."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.embedding import Embedder, FeatureSpec, TableSpec
from sparrow.rules import SGD

PROBE_BYTES: Final = 256 * 2**20
PROBE_ROWS: Final = 200_000
BAG: Final = 50
REPEATS: Final = 5


@dataclasses.dataclass(frozen=True)
class Place:
    """Somewhere that holds memory.

    Attributes:
      name: "host", or the device.
      total: bytes; None: not known.
      free: bytes now.
    """

    name: str
    total: int | None
    free: int | None


@dataclasses.dataclass(frozen=True)
class Machine:
    """Memory and rates.

    Attributes:
      platform: of JAX: "cpu", "gpu" or "tpu".
      host: its memory.
      devices: theirs; empty on a CPU, where tables are in the host's memory.
      copy_rate: bytes a second, read and written, of a multiplication over a large array, in place.
      row_seconds: for a random row of so many bytes, the time that its lookup takes.
    """

    platform: str
    host: Place
    devices: tuple[Place, ...]
    copy_rate: float
    row_seconds: dict[int, float]


def machine(row_bytes: Iterable[int]) -> Machine:
    """Look and measures; ``row_bytes``: the sizes of rows that matter."""
    host, devices = host_memory(), device_memory()
    room = min([place.free for place in (host, *devices) if place.free is not None], default=8 * PROBE_BYTES)
    probe = int(min(PROBE_BYTES, room // 8))
    rates = {size: row_seconds(size, probe) for size in sorted(set(row_bytes))}
    return Machine(jax.default_backend(), host, devices, copy_rate(probe), rates)


def copy_rate(probe: int) -> float:
    """Bytes a second that the default device reads and writes."""
    held = [jnp.ones(max(probe // 4, 1), jnp.float32)]
    multiply = jax.jit(lambda x: x * 1.5, donate_argnums=0)  # in place: pages that are new would cost more than moving

    def once() -> jax.Array:
        held.append(multiply(held.pop()))
        return held[0]

    return 2 * held[0].nbytes / _best(once)


def row_seconds(row_bytes: int, probe: int) -> float:
    """Seconds per random row of ``row_bytes`` bytes, by the lookup of the backend that tables use here.

    Rows are looked up in bags of `BAG`, so that it is the reading that counts.
    """
    dim = max(row_bytes // 4, 1)
    rows = max(probe // (4 * dim), 1)
    spec = TableSpec(name="probe", vocabulary_size=rows, embedding_dim=dim, optimizer=SGD(0.0))
    embedder = Embedder([FeatureSpec(name="probe", table_spec=spec)])
    shapes = jax.eval_shape(embedder.init, jax.random.key(0))
    state = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    ids = np.random.default_rng(0).integers(0, rows, (PROBE_ROWS // BAG, BAG))
    batch = jax.device_put(embedder.pack({"probe": ids}))
    return _best(jax.jit(embedder.lookup), state, batch) / ids.size


def _best(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the shortest of a few runs, without the first, which compiles."""
    jax.block_until_ready(function(*arguments))  # type: ignore[no-untyped-call]
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))  # type: ignore[no-untyped-call]
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def host_memory() -> Place:
    """Of the machine, or of the container that this process is in where that has less."""
    fields = {}
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            fields[name] = int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        return Place("host", _physical(), None)
    total, free = fields.get("MemTotal"), fields.get("MemAvailable")
    limit, used = _number("/sys/fs/cgroup/memory.max"), _number("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None and (total is None or limit < total):
        total, free = limit, min(limit - used, free if free is not None else limit)
    return Place("host", total, free)


def device_memory() -> tuple[Place, ...]:
    """Of devices that have their own."""
    places = []
    for device in jax.local_devices():
        stats = device.memory_stats()
        if stats and "bytes_limit" in stats:
            free = stats["bytes_limit"] - stats.get("bytes_in_use", 0)
            places.append(Place(f"{device.device_kind} {device.id}", stats["bytes_limit"], free))
    return tuple(places)


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):  # no such limit, or "max"
        return None
