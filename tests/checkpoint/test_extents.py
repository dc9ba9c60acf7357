"""Checksums of parts of a file, joined."""

import os
import zlib

import pytest

from sparrow.checkpoint.extents import Extent, add, joined


@pytest.mark.parametrize("sizes", [(1,), (3, 0, 5), (4096, 1, 70001), (0, 9)])
def test_parts_in_any_order(sizes):
    parts = [os.urandom(size) for size in sizes]
    extents, at = [], 0
    for part in parts:
        extents.append(Extent(at, len(part), zlib.crc32(part)))
        at += len(part)
    whole = joined(reversed(extents))
    assert whole == Extent(0, at, zlib.crc32(b"".join(parts)))


def test_gaps_and_overlaps():
    with pytest.raises(ValueError, match="byte 3 is missing"):
        joined([Extent(0, 3, 1), Extent(4, 2, 2)])
    with pytest.raises(ValueError, match="byte 3 is missing, or is there twice"):
        joined([Extent(0, 3, 1), Extent(2, 2, 2)])


def test_neighbors_become_one():
    extents = []
    for first, text in ((10, b"ab"), (12, b"cd"), (20, b"e"), (21, b"f")):
        add(extents, Extent(first, len(text), zlib.crc32(text)))
    assert extents == [Extent(10, 4, zlib.crc32(b"abcd")), Extent(20, 2, zlib.crc32(b"ef"))]
