"""Sorting many rows by several keys, fast.

NumPy sorts 64-bit integers with vector instructions; its ``argsort`` and ``lexsort`` do not, and take about
ten times as long. So keys become 32-bit codes that sort as they do, and the row number rides along in the lower
32 bits of what is sorted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint32]

_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
MAX_ROWS = 1 << 31  # of one process: a row number, or a group's, and one more bit, fit 32 bits


def stable_order(codes: Codes) -> NDArray[np.int64]:
    """``np.argsort(codes, kind="stable")``.

    >>> stable_order(np.array([5, 1, 5, 0], np.uint32))
    array([3, 1, 0, 2])
    """
    if codes.size > MAX_ROWS:
        raise ValueError(f"exact metrics sort at most 2**31 rows in one process, got {codes.size}")
    packed = codes.astype(np.uint64)
    packed <<= _SHIFT
    packed |= np.arange(codes.size, dtype=np.uint64)
    packed.sort()
    packed &= _LOW
    return packed.view(np.int64)


def order_by(*codes: Codes) -> NDArray[np.int64]:
    """Return the stable order by the first of ``codes``, then the second, and so on.

    >>> order_by(np.array([1, 0, 1], np.uint32), np.array([7, 9, 3], np.uint32))
    array([1, 2, 0])
    """
    telling = [code for code in codes if code.size and code.min() != code.max()] or [codes[-1]]
    order = stable_order(telling[-1])
    for code in reversed(telling[:-1]):
        order = order[stable_order(code[order])]
    return order


def starts(*codes: NDArray[np.unsignedinteger]) -> NDArray[np.int64]:
    """Where runs of equal codes begin in sorted arrays.

    >>> starts(np.array([4, 4, 6, 6, 6], np.uint32))
    array([0, 2])
    """
    changed = np.zeros(codes[0].size, bool)
    changed[:1] = True
    for code in codes:
        changed[1:] |= code[1:] != code[:-1]
    return np.flatnonzero(changed)


def running_before(values: NDArray[Any], first: NDArray[np.int64]) -> NDArray[Any]:
    """For each value, the sum of those before it in its run; runs begin at ``first``.

    >>> running_before(np.array([1, 2, 3, 10, 20]), np.array([0, 3]))
    array([ 0,  1,  3,  0, 10])
    """
    sizes = np.diff(first, append=values.size)
    if values.dtype.kind != "f":
        running = np.cumsum(values)
        running -= values
        running -= np.repeat(running[first], sizes)
        return running
    # One total over all runs would grow so large that its rounding drowns a small run. So every run is scaled by a
    # power of two to a sum near 1, which is exact, and begins by taking the run before it away again.
    totals = np.add.reduceat(values, first)
    exponents = np.frexp(totals)[1]
    exponent = np.repeat(exponents, sizes)
    scaled = np.ldexp(values, -exponent)
    restarted = scaled.copy()
    restarted[first[1:]] -= np.ldexp(totals, -exponents)[:-1]
    running = np.cumsum(restarted)
    running -= scaled
    running -= np.repeat(running[first], sizes)
    np.ldexp(running, exponent, out=running)
    return running


def float_codes(values: NDArray[np.floating]) -> Codes:
    """32-bit codes that compare as the numbers do; equal numbers have equal codes, 0.0 and -0.0 too.

    >>> float_codes(np.array([0.5, -1.0, -0.0, 0.0], np.float32)).argsort(kind="stable")
    array([1, 2, 3, 0])
    """
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    if values.dtype != np.float32 and not np.array_equal(narrow, values):
        return dense_codes(_ordered_bits(values.astype(np.float64)))
    return _ordered_bits(narrow).astype(np.uint32, copy=False)


def dense_codes(low: NDArray[np.uint64], high: NDArray[np.uint64] | None = None) -> Codes:
    """Return the rank of each key among the distinct keys: 0, 1, 2, ... in the order of (high, low)."""
    words = [low] if high is None else [high, low]
    halves = [half for word in words for half in ((word >> _SHIFT).astype(np.uint32), word.astype(np.uint32))]
    order = order_by(*halves)
    ranks = np.zeros(low.size, np.uint32)
    ranks[starts(*(word[order] for word in words))[1:]] = 1
    codes = np.empty(low.size, np.uint32)
    codes[order] = np.cumsum(ranks, dtype=np.uint32)
    return codes


def key_codes(low: NDArray[np.uint64], high: NDArray[np.uint64] | None = None) -> Codes:
    """Codes below 2**31, equal where the keys are; integers of a narrow range are their own codes, without a sort."""
    if high is None and low.size:
        signed = low.view(np.int64)
        smallest = signed.min()
        if int(signed.max()) - int(smallest) < 1 << 31:
            offsets: Codes = (signed - smallest).astype(np.uint32)
            return offsets
    return dense_codes(low, high)


def _ordered_bits(values: NDArray[np.floating]) -> NDArray[np.unsignedinteger]:
    """Return the bits of a float, changed so that they compare as unsigned integers do."""
    positive_zero = values + values.dtype.type(0)  # -0.0 + 0.0 is 0.0
    width = values.dtype.itemsize * 8
    bits = positive_zero.view(f"u{width // 8}")
    sign = bits.dtype.type(1 << (width - 1))
    # Negative numbers: flip every bit. Others: set the sign bit.
    ordered: NDArray[np.unsignedinteger] = np.where(bits & sign, ~bits, bits | sign)
    return ordered
