"""64-bit numbers as two uint32, low and high: JAX has no 64-bit integers by default."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Word = tuple[jax.Array, jax.Array]  # low, high; uint32
U64 = npt.NDArray[np.uint64]

_GOLDEN: Final = 0x9E3779B97F4A7C15
_MULTIPLY_1: Final = 0xBF58476D1CE4E5B9
_MULTIPLY_2: Final = 0x94D049BB133111EB


def split(value: int) -> tuple[int, int]:
    """Return the low and the high 32 bits of ``value``.

    >>> split(2**32 + 5)
    (5, 1)
    """
    return value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF


def constant(value: int) -> Word:
    """Return ``value`` as two scalars."""
    low, high = split(value)
    return jnp.uint32(low), jnp.uint32(high)


def add(a: Word, b: Word) -> Word:
    """Return a + b modulo 2**64."""
    low = a[0] + b[0]
    return low, a[1] + b[1] + (low < a[0]).astype(jnp.uint32)


def xor(a: Word, b: Word) -> Word:
    """Return the bits in which a and b differ."""
    return a[0] ^ b[0], a[1] ^ b[1]


def less(a: Word, b: Word) -> jax.Array:
    """Whether a < b."""
    result: jax.Array = (a[1] < b[1]) | ((a[1] == b[1]) & (a[0] < b[0]))
    return result


def high_product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the high 32 bits of the product of two uint32: for ``a`` any hash, a number below ``b``."""
    mask, half = jnp.uint32(0xFFFF), jnp.uint32(16)
    a_low, a_high, b_low, b_high = a & mask, a >> half, b & mask, b >> half
    low, cross, other = a_low * b_low, a_high * b_low, a_low * b_high
    middle = (low >> half) + (cross & mask) + (other & mask)  # below 2**18
    result: jax.Array = a_high * b_high + (cross >> half) + (other >> half) + (middle >> half)
    return result


def mix64(x: Word) -> Word:
    """`mix64_of_numpy` on two words."""
    x = add(x, constant(_GOLDEN))
    x = _times(_xor_shifted(x, 30), _MULTIPLY_1)
    x = _times(_xor_shifted(x, 27), _MULTIPLY_2)
    return _xor_shifted(x, 31)


def mix64_of_numpy(x: U64) -> U64:
    """One step of splitmix64, a bijection of the 64-bit numbers:

    ``x += 0x9e3779b97f4a7c15; x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9; x = (x ^ x >> 27) * 0x94d049bb133111eb;
    x ^= x >> 31``, all modulo 2**64.

    >>> [hex(value) for value in mix64_of_numpy(np.array([0, 1], np.uint64)).tolist()]
    ['0xe220a8397b1dcdaf', '0x910a2dec89025cc1']

    Reference: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
    """
    x = x + np.uint64(_GOLDEN)  # a fresh array: everything after is done in place
    x ^= x >> np.uint64(30)
    x *= np.uint64(_MULTIPLY_1)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_MULTIPLY_2)
    x ^= x >> np.uint64(31)
    return x


def hash_integers(values: npt.NDArray[np.integer[Any]]) -> U64:
    """`mix64_of_numpy` of integers of any type; a negative number counts as its two's complement in 64 bits.

    Trained tables depend on it: a change would send every hashed id to another row.
    """
    wide = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64, copy=False)
    return mix64_of_numpy(wide.view(np.uint64))


def words_of(ids: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """(N, 2) uint32: 64-bit integers of the host as low and high words.

    >>> words_of(np.array([-1, 2**32], np.int64)).tolist()
    [[4294967295, 4294967295], [0, 1]]
    """
    wide = np.ascontiguousarray(ids, np.uint64 if ids.dtype.kind == "u" else np.int64)
    return wide.astype(wide.dtype.newbyteorder("<"), copy=False).view(np.uint32).reshape(-1, 2)


def numbers_of(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """(N,) uint64: the opposite of `words_of`.

    >>> numbers_of(np.array([[0, 1]], np.uint32)).tolist()
    [4294967296]
    """
    return words[..., 0].astype(np.uint64) | words[..., 1].astype(np.uint64) << np.uint64(32)


def part_of(ids: jax.Array, parts: int) -> jax.Array:
    """(N,) int32: which of ``parts`` equal parts of a table each id of ``ids``, (N, 2) uint32, belongs to."""
    _, high = mix64((ids[:, 0], ids[:, 1]))
    return high_product(high, jnp.uint32(parts)).astype(jnp.int32)


def part_of_numpy(ids: U64, parts: int) -> npt.NDArray[np.int32]:
    """`part_of` on the host, of uint64.

    >>> part_of_numpy(np.array([0, 1, 2**64 - 1], np.uint64), 8).tolist()
    [7, 4, 7]
    """
    high = mix64_of_numpy(ids) >> np.uint64(32)
    return (high * np.uint64(parts) >> np.uint64(32)).astype(np.int32)


def _xor_shifted(x: Word, by: int) -> Word:
    low, high = x
    return low ^ (low >> by | high << (32 - by)), high ^ high >> by


def _times(x: Word, by: int) -> Word:
    low, high = constant(by)
    return x[0] * low, high_product(x[0], low) + x[0] * high + x[1] * low
