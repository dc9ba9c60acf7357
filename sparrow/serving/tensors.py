"""Files of tables in the safetensors format (`sparrow.files.tensors`), read in place.

The reader of the package `safetensors` copies an array: tables are too large for that.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.data import DataError, shown
from sparrow.files import CODES, Streamed, dtype_of, write_tensors

Array = npt.NDArray[Any]

DTYPES: Final = ("float32", "bfloat16", "float16", "uint8")
"""The dtypes that a table may have; tables of few bits are records of bytes."""

READ_BYTES: Final = 1 << 22

COPIED_BYTES: Final = 64 << 20
"""The small tables of an export are held in memory, up to this number of bytes in all."""

HEADER_BYTES: Final = 100 << 20
"""The longest header that the format allows."""


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """Size and SHA-256 of a file, to detect damage."""

    bytes: int
    sha256: str


def write(path: Path, arrays: Sequence[Streamed]) -> Fingerprint:
    """Write the arrays in one pass; memory holds one block at a time."""
    digest = hashlib.sha256()
    return Fingerprint(write_tensors(path, arrays, digest.update), digest.hexdigest())


def read(file: BinaryIO, where: str, private: bool = False) -> dict[str, Array]:
    """Return the arrays by name, read-only. Small ones are copied, up to `COPIED_BYTES`; the others stay in the file.

    ``private``: they may be written to, in memory alone.

    An array in the file costs the memory of the pages that are touched. It outlives the file's name, so that the file
    may be replaced or removed. Cutting a file off that is in use ends the process (SIGBUS) when a missing page is
    touched: the copies are safe from that.
    """
    entries = _header(file, where)
    arrays: dict[str, Array] = {}
    room = COPIED_BYTES
    for entry in sorted(entries, key=lambda entry: entry.bytes):
        if entry.bytes <= room:
            room -= entry.bytes
            file.seek(entry.begin)
            flat = np.fromfile(file, np.uint8, entry.bytes)
            if flat.nbytes != entry.bytes:
                raise DataError("was cut off while it was read", where)
            flat.flags.writeable = private
            arrays[entry.name] = flat.view(entry.dtype).reshape(entry.shape)
        else:
            mode: Any = "c" if private else "r"
            arrays[entry.name] = np.memmap(file, entry.dtype, mode, entry.begin, entry.shape).view(np.ndarray)
    return arrays


class _Entry(NamedTuple):
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int  # in the file
    bytes: int


def _header(file: BinaryIO, where: str) -> list[_Entry]:
    """Return the arrays that a file declares, which must fill it to the byte; else raise `DataError`."""
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    try:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(size - 8, HEADER_BYTES):
            raise ValueError(f"its header would have {length} bytes")
        header = json.loads(file.read(length))
        entries = [_entry(name, fields, 8 + length) for name, fields in header.items() if name != "__metadata__"]
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise DataError(f"is not a safetensors file of tables, or was cut off: {error}", where) from None
    end = 8 + length
    for entry in sorted(entries, key=lambda entry: (entry.begin, entry.bytes)):
        if entry.begin != end:
            raise DataError(f"holds the array {shown(entry.name)} where another one is; export again", where)
        end += entry.bytes
    if end != size:
        raise DataError(f"holds {size} bytes, its header declares {end}; export again", where)
    return entries


def _entry(name: str, fields: dict[str, Any], start: int) -> _Entry:
    names = {CODES[name]: name for name in DTYPES}
    dtype, shape, (begin, end) = dtype_of(names[fields["dtype"]]), fields["shape"], fields["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ValueError(f"the array {shown(name)} has the shape {shown(shape)}")
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"the array {shown(name)} of shape {shown(shape)} has {end - begin} bytes")
    return _Entry(name, dtype, tuple(shape), start + begin, end - begin)


def fingerprint(file: BinaryIO) -> Fingerprint:
    """Return size and checksum of an open file, read from its beginning, a few megabytes at a time."""
    digest, size = hashlib.sha256(), 0
    file.seek(0)
    while block := file.read(READ_BYTES):
        digest.update(block)
        size += len(block)
    return Fingerprint(size, digest.hexdigest())
