"""Arrays whose memory is used again: it returns to a pool when the last view of an array is gone."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.kernels.feed.loading import library, short_calls

LEAST: Final = 2**16
"""Bytes from which arrays come from the pool."""
KEPT: Final = 2**27
"""Bytes that the process keeps for the next pipeline: its pages need not be cleared by the system again."""


class Piece:
    """Memory of the pool, as NumPy takes it; given back when nothing refers to it."""

    __slots__ = ("__array_interface__", "_address", "_give", "_size")

    def __init__(self, loaded: ctypes.PyDLL, address: int, size: int) -> None:
        self._give, self._address, self._size = loaded.sparrow_pool_give, address, size
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}

    def __del__(self) -> None:
        self._give(self._address, self._size)


def empty(shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    """Return an array with any content, which begins at a multiple of 64 bytes, and has 64 spare bytes behind it."""
    dtype = np.dtype(dtype)
    bytes_ = math.prod(shape) * dtype.itemsize
    loaded = short_calls() if bytes_ >= LEAST else None
    if loaded is not None:
        address = loaded.sparrow_pool_take(bytes_ + 64)
        if not address:
            raise MemoryError(f"no memory for {bytes_:,} bytes")
        memory: npt.NDArray[Any] = np.asarray(Piece(loaded, address, bytes_ + 64))
    else:
        memory = np.empty(bytes_ + 128, np.uint8)
        skip = -memory.__array_interface__["data"][0] % 64
        memory = memory[skip:]
    made: npt.NDArray[Any] = memory[:bytes_].view(dtype).reshape(shape)
    return made


def held(address: int, size: int, dtype: Any) -> npt.NDArray[Any]:
    """Return memory that compiled code took from the pool as an array, which gives it back."""
    loaded = short_calls()
    assert loaded is not None  # it took the memory
    return np.asarray(Piece(loaded, address, size)).view(dtype)


def trim(keep: int = KEPT) -> int:
    """Return the memory that is not in use to the system, but for ``keep`` bytes; return the number of bytes."""
    loaded = library()
    return 0 if loaded is None else int(loaded.sparrow_pool_trim(keep))
