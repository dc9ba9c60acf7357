"""Rows that leave the device and rows that come: two small programs besides the step, for few sizes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from sparrow.embedding.sizes import size_class

Arrays = dict[str, jax.Array]
AN_OCTAVE = 16
"""Sizes per power of two."""
SPARE, LEAST = 1.02, 0.88
"""The size of a transfer over its rows when it is chosen, and the least share of it that rows must fill."""
FEW = 256
"""Rows to spare besides: small numbers of rows vary more."""


class Room:
    """The size of transfers, which follows the number of rows slowly: a few compiled programs serve all steps.

    >>> room = Room()
    >>> [room.fit(count) for count in (100_000, 102_000, 95_000, 80_000, 100, 1)]
    [102400, 102400, 102400, 81920, 368, 368]
    """

    def __init__(self) -> None:
        self._size = 0

    def fit(self, count: int) -> int:
        """Return the size for ``count`` rows."""
        if not LEAST * self._size - 4 * FEW <= count <= self._size:
            self._size = size_class(int(SPARE * count) + FEW, AN_OCTAVE)
        return self._size


def padded(slots: npt.NDArray[np.int32], num_slots: int, size: int) -> npt.NDArray[np.int32]:
    """Return the slots, padded to ``size`` with numbers past the last slot, each of them once."""
    made = np.arange(num_slots - len(slots), num_slots - len(slots) + size, dtype=np.int64)
    made[: len(slots)] = slots
    return made.astype(np.int32)


def _put(arrays: Arrays, at: jax.Array, values: Any) -> Arrays:
    return {
        name: array.at[at].set(values[name], mode="drop", unique_indices=True) if name in values else array
        for name, array in arrays.items()
    }


def _swap(arrays: Arrays, out: jax.Array, at: jax.Array, values: Any) -> tuple[Arrays, Arrays]:
    taken = {name: array.at[out].get(mode="clip") for name, array in arrays.items()}
    return _put(arrays, at, values), taken


put = jax.jit(_put, donate_argnums=0)
"""``put(arrays, at, values)``: the arrays, donated, with the values at slots; padding is dropped."""
swap = jax.jit(_swap, donate_argnums=0)
"""``swap(arrays, out, at, values)``: the same, and the values that were at slots ``out``; any for padding."""
