"""`RowsOnDevice`: exact search among rows in the memory of a GPU, by XLA; `best_rows` has the definition."""

from __future__ import annotations

import functools
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.kernels.search.exact import Excluded, Floats, Numbers

BLOCK: Final = 2**20
"""Rows whose scores are held at a time."""
GROUP: Final = 128
"""Rows of a group: the k best rows lie in the k groups with the best rows, so that few scores are sorted."""


class RowsOnDevice:
    """Rows on the device, in blocks.

    >>> held = RowsOnDevice(np.float32([[0.0, 1.0], [2.0, 0.0], [3.0, 3.0]]))
    >>> scores, rows = held.best(np.float32([[1.0, 0.0]]), k=2)
    >>> rows.tolist(), scores.tolist()
    ([[2, 1]], [[3.0, 2.0]])
    """

    def __init__(self, rows: Floats) -> None:
        self._count = len(rows)
        firsts = range(0, max(self._count, 1), BLOCK)
        self._blocks = [jax.device_put(np.asarray(rows[first : first + BLOCK], np.float32)) for first in firsts]

    @classmethod
    def fitting(cls, rows: Floats) -> RowsOnDevice | None:
        """Return the rows on the GPU of this process; None where there is none, or they leave less than half of it."""
        device = jax.local_devices()[0]
        memory = device.memory_stats() if device.platform == "gpu" else None
        if not memory or 2 * rows.nbytes > memory["bytes_limit"] - memory["bytes_in_use"]:
            return None
        return cls(rows)

    def best(
        self, queries: Floats, k: int, allowed: Any = None, excluded: Excluded | None = None
    ) -> tuple[Floats, Numbers]:
        """Return the scores and the numbers of the ``k`` best rows of each query, as `best_rows` does."""
        count, most = len(queries), 1 << max(len(queries) - 1, 0).bit_length()  # few programs for all requests
        wanted = jnp.asarray(np.pad(np.asarray(queries, np.float32), ((0, most - count), (0, 0))))
        left_out = np.full((most, 0), -1, np.int32) if excluded is None else _padded(excluded, most)
        found = []
        for number, block in enumerate(self._blocks):
            first = number * BLOCK
            passes = None if allowed is None else jnp.asarray(np.asarray(allowed)[first : first + BLOCK])
            found.append(_best_of(wanted, block, np.int32(first), left_out, passes, k=k))
        scores, numbers = jax.device_get(_merged([*zip(*found, strict=True)], k))
        return scores[:count], numbers[:count].astype(np.int64)


def _padded(excluded: Excluded, queries: int) -> np.ndarray[Any, Any]:
    """Return the rows that each query must not find, (queries, most) int32, with -1 behind them."""
    lengths = np.diff(excluded.offsets)
    most = 1 << max(int(lengths.max(initial=0)) - 1, 0).bit_length()
    made = np.full((queries, most), -1, np.int32)
    made[: len(lengths)][np.arange(most) < lengths[:, None]] = excluded.rows
    return made


@functools.partial(jax.jit, static_argnames="k")
def _best_of(
    queries: jax.Array, rows: jax.Array, first: jax.Array, left_out: jax.Array, allowed: jax.Array | None, k: int
) -> tuple[jax.Array, jax.Array]:
    """Return the best of one block: scores, and numbers of rows in the order of `best_rows`."""
    scores = jnp.dot(queries, rows.T, precision=jax.lax.Precision.HIGHEST)
    there = ~jnp.isnan(scores) if allowed is None else ~jnp.isnan(scores) & allowed
    scores = jnp.where(there, scores, -jnp.inf)
    at = jnp.where(left_out >= first, left_out - first, len(rows))
    scores = scores.at[jnp.arange(len(queries))[:, None], at].set(-jnp.inf, mode="drop")
    groups = -(-len(rows) // GROUP)
    grouped = jnp.pad(scores, ((0, 0), (0, groups * GROUP - len(rows))), constant_values=-jnp.inf)
    grouped = grouped.reshape(len(queries), groups, GROUP)
    chosen = jnp.sort(jax.lax.top_k(grouped.max(-1), min(k, groups))[1], axis=1)  # equal scores: the first row first
    some = jnp.take_along_axis(grouped, chosen[:, :, None], axis=1).reshape(len(queries), -1)
    best, places = jax.lax.top_k(some, min(k, some.shape[1]))
    numbers = jnp.take_along_axis(chosen, places // GROUP, axis=1) * GROUP + places % GROUP
    return best, first + numbers


@functools.partial(jax.jit, static_argnums=1)
def _merged(found: list[tuple[jax.Array, ...]], k: int) -> tuple[jax.Array, jax.Array]:
    scores, numbers = (jnp.concatenate(part, axis=1) for part in found)
    missing = max(k - scores.shape[1], 0)
    scores = jnp.pad(scores, ((0, 0), (0, missing)), constant_values=-jnp.inf)
    best, places = jax.lax.top_k(scores, k)
    chosen = jnp.take_along_axis(jnp.pad(numbers, ((0, 0), (0, missing))), places, axis=1)
    return best, jnp.where(jnp.isneginf(best), -1, chosen)
