"""TensorBoard's event files, scalars only. Written here: the format is two small messages in checked records.

A file is a sequence of records::

    length (8 bytes, little endian), masked CRC of these, data, masked CRC of the data

and the data of each is a protocol buffer ``Event {1: wall_time, 2: step, 3: file_version, 5: Summary {1: Value
{1: tag, 2: simple_value}}}``.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_TABLE: Final = _table()


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum, which Python's library lacks.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def record(data: bytes) -> bytes:
    """One record of an event file."""
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


class EventFile:
    """Scalars for TensorBoard, in one event file of a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # The name must hold "tfevents" and be new; TensorBoard reads the files of a folder in the order of their names.
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / name).open("xb")
        self._file.write(record(_event(0, _bytes(3, b"brain.Event:2"))))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds one point to each of the named curves."""
        scalars = [
            _bytes(1, _bytes(1, tag.encode()) + b"\x15" + struct.pack("<f", value)) for tag, value in values.items()
        ]
        self._file.write(record(_event(step, _bytes(5, b"".join(scalars)))))
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
