"""The memory of this machine, and its rates. Measured in a second or two, on arrays beyond the caches."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.embedding import Embedder, FeatureSpec, TableSpec
from sparrow.rules import SGD
from sparrow.runs.loop.places import Place, device_memory, host_memory

PROBE_BYTES: Final = 128 * 2**20
PROBE_ROWS: Final = 100_000
BAG: Final = 50
REPEATS: Final = 3


@dataclasses.dataclass(frozen=True)
class Machine:
    """Memory and rates.

    Attributes:
      platform: of JAX: "cpu", "gpu" or "tpu".
      host: its memory.
      devices: theirs; empty on a CPU, where tables are in the host's memory.
      copy_rate: bytes a second, read and written, of a multiplication over a large array, in place.
      row_seconds: the time of a lookup of one random row, by the bytes of the row.
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
