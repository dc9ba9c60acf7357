"""Maps at their beginning, and from arrays of a checkpoint."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.kernels.ids.index import empty
from sparrow.kernels.ids.types import TOTALS, IdState, Settings


def init(s: Settings) -> IdState:
    """Return a map without ids. Each segment gives its rows out in ascending order."""
    places = jnp.arange(s.places, dtype=jnp.int32)
    free = places
    for begin, end in s.pools:
        free = jnp.where((places >= begin) & (places < end), begin + end - 1 - places, free)
    sizes = [[end - begin, 0] for begin, end in s.pools]
    return IdState(
        jnp.zeros((s.places, 2), jnp.uint32),
        jnp.full(s.places, -1, jnp.int32),
        jnp.zeros(s.places, jnp.int32),
        free,
        jnp.array(sizes, jnp.int32).reshape(-1, 2),
        jnp.zeros((len(s.segments), len(TOTALS), 2), jnp.uint32),
        jnp.zeros(len(s.segments), jnp.int32),
        empty(s.buckets),
    )


def restored(
    s: Settings,
    ids: npt.NDArray[np.uint32],
    last: npt.NDArray[np.int32],
    count: npt.NDArray[np.int32],
    totals: npt.NDArray[np.uint32],
) -> IdState:
    """Return a map with ``ids`` at their places, in arrays of the host; free places are given out ascending.

    Its index is empty: `indexed` of a backend builds it.

    Args:
      s: the settings.
      ids: (P, 2).
      last: (P,), -1 where the place is free.
      count: (P,).
      totals: as of `IdState`.
    """
    free = np.arange(s.places, dtype=np.int32)
    numbers = np.zeros((len(s.pools), 2), np.int32)
    for number, (begin, end) in enumerate(s.pools):
        places = np.flatnonzero(last[begin:end] < 0)[::-1] + begin
        free[begin : begin + len(places)] = places
        numbers[number, 0] = len(places)
    taken = last >= 0
    return IdState(
        jnp.asarray(np.where(taken[:, None], ids, 0).astype(np.uint32)),
        jnp.asarray(last),
        jnp.asarray(np.where(taken, count, 0).astype(np.int32)),
        jnp.asarray(free),
        jnp.asarray(numbers),
        jnp.asarray(totals),
        jnp.zeros(len(s.segments), jnp.int32),
        empty(s.buckets),
    )
