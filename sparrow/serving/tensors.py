"""Named arrays in the safetensors format: written block by block, and read in place.

A file is 8 bytes, the length n of its header (little-endian); n bytes of JSON, ``{name: {"dtype", "shape",
"data_offsets": [begin, end]}}``, filled up with spaces; and then the arrays, row-major and little-endian, one after the
other without gaps. The package `safetensors` reads and writes such files. Its writer needs complete arrays in memory,
and its reader copies an array: tables are too large for either.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from sparrow.data import DataError, shown

Array = npt.NDArray[Any]

CODES: Final = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "uint8": "U8"}
"""The dtypes that a table may have, and their names in the format; tables of few bits are records of bytes."""

ALIGNMENT: Final = 64
"""The arrays begin at a multiple of this number of bytes."""

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


@dataclasses.dataclass(frozen=True)
class Streamed:
    """An array that comes in blocks of rows.

    Attributes:
      name: its name, unique in its file.
      shape: the shape of the complete array.
      dtype: one of `CODES`.
      blocks: its rows, in order.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    blocks: Iterable[Array]

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * dtype_of(self.dtype).itemsize


def dtype_of(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype of that name, bfloat16 included."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def write(path: Path, arrays: Sequence[Streamed]) -> Fingerprint:
    """Write the arrays in one pass; memory holds one block at a time."""
    # Wide dtypes first: then each array begins at a multiple of its dtype's size, for all shapes.
    arrays = sorted(arrays, key=lambda array: -dtype_of(array.dtype).itemsize)
    header: dict[str, Any] = {}
    end = 0
    for array in arrays:
        begin, end = end, end + array.bytes
        header[array.name] = {"dtype": CODES[array.dtype], "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    digest = hashlib.sha256()
    with path.open("wb") as file:

        def put(data: Any) -> None:
            file.write(data)
            digest.update(data)

        put(struct.pack("<Q", len(text)))
        put(text)
        for array in arrays:
            for block in array.blocks:
                put(np.ascontiguousarray(block).view(np.uint8))
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    if size != 8 + len(text) + end:
        raise ValueError(f"{path}: the blocks hold {size - 8 - len(text)} bytes, their shapes give {end}")
    return Fingerprint(size, digest.hexdigest())


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
    names = {code: dtype for dtype, code in CODES.items()}
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
