"""The memory of this machine, and its rates. Measured in a second or two, on arrays beyond the caches."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.embedding import Embedder, EmbeddingState, FeatureSpec, PackedBatch, TableSpec
from sparrow.rules import SGD
from sparrow.runs.step.memory import Memory, device_memory, host_memory

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
      copy_rate: bytes per second, read and written, of a multiplication over a large array, in place.
      row_seconds: the time of a lookup of one random row, by the bytes of the row.
    """

    platform: str
    host: Memory
    devices: tuple[Memory, ...]
    copy_rate: float
    row_seconds: dict[int, float]


def machine(row_bytes: Iterable[int]) -> Machine:
    """Look and measure; ``row_bytes``: the sizes of rows that matter."""
    host, devices = host_memory(), device_memory()
    room = min([place.free for place in (host, *devices) if place.free is not None], default=8 * PROBE_BYTES)
    dims = {size: max(size // 4, 1) for size in sorted(set(row_bytes))}
    numbers = int(min(PROBE_BYTES, room // 8)) // 4
    together = math.lcm(*dims.values())  # one array serves tables of all these dims, where it holds whole rows of each
    shared = jnp.ones(max(numbers // together, 1) * together) if together <= numbers else None
    rates = {
        size: row_seconds(jnp.ones(max(numbers // dim, 1) * dim) if shared is None else shared, dim)
        for size, dim in dims.items()
    }
    return Machine(
        jax.default_backend(), host, devices, copy_rate(jnp.ones(numbers) if shared is None else shared), rates
    )


def copy_rate(array: jax.Array) -> float:
    """Return the bytes per second that the default device reads and writes. The array is donated."""
    held = [array]
    multiply = jax.jit(lambda x: x * 1.5, donate_argnums=0)  # in place: pages that are new would cost more than moving

    def once() -> jax.Array:
        held.append(multiply(held.pop()))
        return held[0]

    return 2 * array.nbytes / _best(once)


def row_seconds(array: jax.Array, dim: int) -> float:
    """Return the seconds per random row, by the lookup of the backend that tables use here.

    Rows are looked up in bags of `BAG`, so that it is the reading that counts. ``array``: the numbers of a table.
    """
    rows = array.size // dim
    spec = TableSpec(name="probe", vocabulary_size=rows, embedding_dim=dim, optimizer=SGD(0.0))
    embedder = Embedder([FeatureSpec(name="probe", table_spec=spec)])
    ids = np.random.default_rng(0).integers(0, rows, (PROBE_ROWS // BAG, BAG))
    packed = jax.device_put(embedder.pack({"probe": ids}))

    def lookup(array: jax.Array, packed: PackedBatch) -> dict[str, jax.Array]:
        zero = jnp.zeros((), jnp.int32)
        table = array.reshape(rows, dim)
        state = EmbeddingState(zero, zero, {embedder.stacks[0].name: table}, {}, {})
        acts: dict[str, jax.Array] = embedder.lookup(state, packed)
        return acts

    return _best(jax.jit(lookup), array, packed) / ids.size


def _best(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the shortest of a few runs, without the first, which compiles."""
    jax.block_until_ready(function(*arguments))  # type: ignore[no-untyped-call]
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))  # type: ignore[no-untyped-call]
        seconds.append(time.perf_counter() - began)
    return min(seconds)
