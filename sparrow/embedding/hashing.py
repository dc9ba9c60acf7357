"""A fixed hash of ids: the same 64 bits for the same number on every platform, in every version.

Trained tables depend on it: a change would send every hashed id to another row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)


def mix64(x: U64) -> U64:
    """One step of splitmix64, a bijection of the 64-bit numbers:

    ``x += 0x9e3779b97f4a7c15; x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9; x = (x ^ x >> 27) * 0x94d049bb133111eb;
    x ^= x >> 31``, all modulo 2**64.

    >>> [hex(value) for value in mix64(np.array([0, 1], np.uint64)).tolist()]
    ['0xe220a8397b1dcdaf', '0x910a2dec89025cc1']

    Reference: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
    """
    x = x + _GOLDEN  # a fresh array: everything after is done in place
    x ^= x >> np.uint64(30)
    x *= _MULTIPLY_1
    x ^= x >> np.uint64(27)
    x *= _MULTIPLY_2
    x ^= x >> np.uint64(31)
    return x


def hash_integers(values: npt.NDArray[np.integer[Any]]) -> U64:
    """`mix64` of integers of any type; a negative number counts as its two's complement in 64 bits."""
    wide = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64, copy=False)
    return mix64(wide.view(np.uint64))
