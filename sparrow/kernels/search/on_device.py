"""`RowsOnDevice`: exact search among rows in the memory of a GPU, by XLA; `best_rows` has the definition."""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]

BLOCK: Final = 2**20
"""Rows whose scores are held at a time."""
QUERIES: Final = 64
"""Queries whose scores are held at a time."""
GROUP: Final = 128
"""Rows of a group: the k best rows lie in the k groups with the best rows, so that few scores are sorted."""


class Excluded(NamedTuple):
    """Rows that a query must not find.

    Attributes:
      offsets: (queries + 1,) where the rows of each query begin.
      rows: row numbers, ascending for each query.
    """

    offsets: Numbers
    rows: Numbers


class RowsOnDevice:
    """Rows on the device, in blocks.

    >>> held = RowsOnDevice(np.float32([[0.0, 1.0], [2.0, 0.0], [3.0, 3.0]]))
    >>> scores, rows = held.best(np.float32([[1.0, 0.0]]), k=2)
    >>> rows.tolist(), scores.tolist()
    ([[2, 1]], [[3.0, 2.0]])
    """

    def __init__(self, rows: Floats) -> None:
        self._cuts = [slice(first, first + BLOCK) for first in range(0, max(len(rows), 1), BLOCK)]
        self._blocks = [jax.device_put(np.asarray(rows[cut], np.float32)) for cut in self._cuts]

    @classmethod
    def fitting(cls, rows: Floats) -> RowsOnDevice | None:
        """Return the rows on the GPU of this process; None where there is none, or too little of it would stay free."""
        device = jax.local_devices()[0]
        memory = device.memory_stats() if device.platform == "gpu" else None
        scores = 4 * QUERIES * min(len(rows), BLOCK)  # bytes; XLA holds them up to four times, masked and in groups
        if not memory or 2 * rows.nbytes + 4 * scores > memory["bytes_limit"] - memory["bytes_in_use"]:
            return None
        return cls(rows)

    def best(
        self, queries: Floats, k: int, allowed: Any = None, excluded: Excluded | None = None
    ) -> tuple[Floats, Numbers]:
        """Return the scores and the numbers of the ``k`` best rows of each query, as `best_rows` does."""
        masks = [None if allowed is None else jnp.asarray(np.asarray(allowed)[cut]) for cut in self._cuts]
        most, found = _rounded(k), []
        for begin in range(0, max(len(queries), 1), QUERIES):
            asked = np.asarray(queries[begin : begin + QUERIES], np.float32)
            size = _rounded(len(asked))
            wanted = jnp.asarray(np.pad(asked, ((0, size - len(asked)), (0, 0))))
            left_out = _left_out(excluded, begin, len(asked), size)
            best = [
                _best_of(wanted, block, np.int32(cut.start), left_out, mask, k=most)
                for block, cut, mask in zip(self._blocks, self._cuts, masks, strict=True)
            ]
            found.append(_merged([*zip(*best, strict=True)], most))
        scores, numbers = map(np.concatenate, zip(*jax.device_get(found), strict=True))
        return scores[: len(queries), :k], numbers[: len(queries), :k].astype(np.int64)


def _rounded(size: int) -> int:
    """Return the next power of two: few programs serve all requests."""
    return 1 << max(size - 1, 0).bit_length()


def _left_out(excluded: Excluded | None, begin: int, count: int, size: int) -> np.ndarray[Any, Any]:
    """Return the rows that ``count`` queries from ``begin`` on must not find, (size, most) int32, -1 behind them."""
    if excluded is None:
        return np.full((size, 0), -1, np.int32)
    offsets = excluded.offsets[begin : begin + count + 1]
    lengths = np.diff(offsets)
    made = np.full((size, _rounded(int(lengths.max(initial=0)))), -1, np.int32)
    made[:count][np.arange(made.shape[1]) < lengths[:, None]] = excluded.rows[offsets[0] : offsets[-1]]
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
    chosen = jnp.sort(_largest(grouped.max(-1), k)[1], axis=1)  # equal scores: the first row first
    some = jnp.take_along_axis(grouped, chosen[:, :, None], axis=1).reshape(len(queries), -1)
    best, places = _largest(some, k)
    numbers = jnp.take_along_axis(chosen, places // GROUP, axis=1) * GROUP + places % GROUP
    return best, first + numbers


@functools.partial(jax.jit, static_argnums=1)
def _merged(found: list[tuple[jax.Array, ...]], k: int) -> tuple[jax.Array, jax.Array]:
    scores, numbers = (jnp.concatenate(part, axis=1) for part in found)
    missing = max(k - scores.shape[1], 0)
    best, places = _largest(jnp.pad(scores, ((0, 0), (0, missing)), constant_values=-jnp.inf), k)
    chosen = jnp.take_along_axis(jnp.pad(numbers, ((0, 0), (0, missing))), places, axis=1)
    return best, jnp.where(jnp.isneginf(best), -1, chosen)


def _largest(scores: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """Return the ``k`` largest scores of each row, and their places; of equal ones, the first is first.

    `jax.lax.top_k` promises no such order on every GPU, and its result is a sort anyway above 16 places.
    """
    places = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    negated, order = jax.lax.sort((-scores, places), dimension=1, is_stable=True, num_keys=1)
    return -negated[:, :k], order[:, :k]
