"""TensorBoard's event files: scalars and histograms. Written here: the format is small messages in checked records.

A file is a sequence of records::

    length (8 bytes, little endian), masked CRC of these, data, masked CRC of the data

and the data of each is a protocol buffer ``Event {1: wall_time, 2: step, 3: file_version, 5: Summary {1: Value
{1: tag, 2: simple_value, 5: Histogram}}}``, with ``Histogram {1: min, 2: max, 3: num, 4: sum, 5: sum_squares,
6: bucket_limit, 7: bucket}``: a bucket counts the values up to its limit that are above the previous limit.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_TABLE: Final = _table()


def crc32c(data: bytes) -> int:
    """Return the Castagnoli checksum, which Python's library lacks.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def record(data: bytes) -> bytes:
    """Return one record of an event file."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _event(step: int, body: bytes) -> bytes:
    return b"\x09" + struct.pack("<d", time.time()) + b"\x10" + _varint(step) + body


def histogram(array: npt.ArrayLike, buckets: int = 30) -> bytes | None:
    """Return the histogram of an array's finite values as a message; None where there is none."""
    values = np.asarray(array, np.float64).reshape(-1)
    values = values[np.isfinite(values)]
    if not values.size:
        return None
    low, high = float(values.min()), float(values.max())
    edges = np.array([low, high]) if low == high else np.linspace(low, high, buckets + 1)
    # A value on a limit belongs to the bucket below it; the smallest values have the first bucket.
    counts = np.bincount(np.searchsorted(edges[1:-1], values), minlength=len(edges) - 1)
    facts = (low, high, float(values.size), float(values.sum()), float(np.square(values).sum()))
    scalars = b"".join(_varint(field << 3 | 1) + struct.pack("<d", x) for field, x in enumerate(facts, 1))
    return scalars + _bytes(6, edges[1:].astype("<f8").tobytes()) + _bytes(7, counts.astype("<f8").tobytes())


def event_file_name() -> str:
    """Return a new name, with "tfevents" in it: TensorBoard reads the files of a folder in the order of their names."""
    return f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"


class EventFile:
    """Curves and histograms for TensorBoard, in a new file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = Appended(path, new=True)
        self._file.add(record(_event(0, _bytes(3, b"brain.Event:2"))))

    def write(self, step: int, values: Mapping[str, float], arrays: Mapping[str, npt.ArrayLike] | None = None) -> None:
        """Add one point to each of the named curves, and a histogram of each array."""
        entries = [(tag, b"\x15" + struct.pack("<f", value)) for tag, value in values.items()]
        for tag, array in (arrays or {}).items():
            message = histogram(array)
            if message is not None:
                entries.append((tag, _bytes(5, message)))
        summary = b"".join(_bytes(1, _bytes(1, tag.encode()) + entry) for tag, entry in entries)
        self._file.add(record(_event(step, _bytes(5, summary))))

    def close(self) -> None:
        self._file.close()


class Appended:
    """A file that pieces are added to. A piece that does not fit on the disk leaves no part, and raises `OSError`."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        """Open the file; a ``new`` one must not exist."""
        self._path = path
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | (os.O_EXCL if new else 0)
        self._descriptor = os.open(path, flags, 0o666)
        self._length = os.fstat(self._descriptor).st_size

    def add(self, piece: bytes) -> None:
        view = memoryview(piece)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._length)
            raise OSError(error.errno, error.strerror, str(self._path)) from None
        self._length += len(piece)

    def close(self) -> None:
        """Close it. Where the file system reports a lost piece, do not try again."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)
