"""`Extent`: a part of a file with its checksum; the checksums of all parts give the checksum of the file."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final, NamedTuple

POLYNOMIAL: Final = 0xEDB88320
"""The polynomial of CRC-32, its bits reversed."""


class Extent(NamedTuple):
    """Bytes ``first`` to ``first + size`` of a file, and their CRC-32."""

    first: int
    size: int
    crc: int


def joined(extents: Iterable[Extent], begin: int = 0) -> Extent:
    """Return the extents as one. They may come in any order; raises `ValueError` for a gap or an overlap.

    >>> import zlib
    >>> joined([Extent(3, 2, zlib.crc32(b"de")), Extent(0, 3, zlib.crc32(b"abc"))]).crc == zlib.crc32(b"abcde")
    True
    """
    whole = Extent(begin, 0, 0)
    for extent in sorted(extents):
        if extent.first != whole.first + whole.size:
            raise ValueError(f"byte {whole.first + whole.size} is missing, or is there twice")
        whole = Extent(begin, whole.size + extent.size, combined(whole.crc, extent.crc, extent.size))
    return whole


def add(extents: list[Extent], extent: Extent) -> None:
    """Add an extent to a list, joined to the last one where it follows it."""
    if extents and extents[-1].first + extents[-1].size == extent.first:
        extents[-1] = joined([extents[-1], extent], extents[-1].first)
    else:
        extents.append(extent)


def combined(first: int, second: int, size: int) -> int:
    """Return the CRC-32 of two byte strings, one after the other, from the CRC-32 of each and the second's size."""
    return _times(_zeros(size), first) ^ second


@functools.lru_cache(maxsize=64)
def _zeros(size: int) -> int:
    """Return the polynomial that ``size`` zero bytes multiply a CRC-32 with: blocks have few different sizes."""
    made, power, bits = 1 << 31, 1 << 30, 8 * size  # 1 and x: the first bit is the constant
    while bits:
        made = _times(made, power) if bits & 1 else made
        power, bits = _times(power, power), bits >> 1
    return made


def _times(a: int, b: int) -> int:
    """Multiply two polynomials modulo that of CRC-32."""
    product = 0
    for bit in range(31, -1, -1):
        product ^= b if a >> bit & 1 else 0
        b = b >> 1 ^ (POLYNOMIAL if b & 1 else 0)
    return product
