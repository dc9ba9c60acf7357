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


def _times(matrix: tuple[int, ...], vector: int) -> int:
    """Multiply a matrix of bits, given by its columns, with a vector of bits."""
    product, column = 0, 0
    while vector:
        if vector & 1:
            product ^= matrix[column]
        vector, column = vector >> 1, column + 1
    return product


def _square(matrix: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(_times(matrix, column) for column in matrix)


@functools.lru_cache(maxsize=64)
def _power(exponent: int) -> tuple[int, ...]:
    """Return the matrix that ``2 ** exponent`` zero bytes multiply a CRC-32 with."""
    if exponent:
        return _square(_power(exponent - 1))
    bit = (POLYNOMIAL, *(1 << number for number in range(31)))
    return _square(_square(_square(bit)))  # eight zero bits


@functools.lru_cache(maxsize=64)
def _zeros(size: int) -> tuple[int, ...]:
    """Return the matrix of ``size`` zero bytes: blocks have few different sizes."""
    matrix = tuple(1 << number for number in range(32))
    for exponent in range(size.bit_length()):
        if size >> exponent & 1:
            power = _power(exponent)
            matrix = tuple(_times(power, column) for column in matrix)
    return matrix
