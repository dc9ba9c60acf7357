"""Named arrays in the safetensors format: written block by block, and read in place.

A file is 8 bytes, the length n of its header (little-endian); n bytes of JSON, ``{name: {"dtype", "shape",
"data_offsets": [begin, end]}}``, filled up with spaces; and then the arrays, row-major and little-endian, one after the
other without gaps. The package `safetensors` reads and checks such files. Its writer wants whole arrays in memory, and
its reader copies an array: tables are too large for either.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from sparrow.data import DataError

Array = npt.NDArray[Any]

CODES: Final = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
"""The dtypes that a table may have, and what the format calls them."""

ALIGNMENT: Final = 64
"""Where the arrays begin is a multiple of this."""

READ_BYTES: Final = 1 << 22


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """What tells whether a file is whole: its size, and the SHA-256 of its bytes."""

    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Streamed:
    """An array that comes in blocks of rows.

    Attributes:
      name: unique in its file.
      shape: of the whole array.
      dtype: one of `CODES`.
      blocks: its rows, in order.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    blocks: Iterable[Array]

    @property
    def bytes(self) -> int:
        """How long it is in the file."""
        return int(np.prod(self.shape, dtype=np.int64)) * dtype_of(self.dtype).itemsize


def dtype_of(name: str) -> np.dtype[Any]:
    """NumPy's dtype of that name, bfloat16 included."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def write(path: Path, arrays: Sequence[Streamed]) -> Fingerprint:
    """Writes the arrays in one pass; memory holds one block at a time."""
    # Wide dtypes first: then each array begins at a multiple of its dtype's size, whatever the shapes.
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
        raise ValueError(f"{path}: the blocks hold {size - 8 - len(text)} bytes, their shapes say {end}")
    return Fingerprint(size, digest.hexdigest())


def memory_map(path: Path) -> dict[str, Array]:
    """The arrays by name, read-only and in place: memory holds only the pages that are touched."""
    from safetensors import SafetensorError, safe_open

    arrays: dict[str, Array] = {}
    names = {code: name for name, code in CODES.items()}
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
        with safe_open(path, "np") as opened:
            begin = 8 + length
            for name in opened.offset_keys():
                piece = opened.get_slice(name)
                dtype, shape = dtype_of(names[piece.get_dtype()]), tuple(piece.get_shape())
                mapped = np.memmap(path, dtype, "r", begin, shape)
                arrays[name] = mapped.view(np.ndarray)
                begin += mapped.nbytes
    except (OSError, SafetensorError, struct.error, KeyError, ValueError) as error:
        raise DataError(f"is not a safetensors file of tables, or was cut off: {error}", str(path)) from None
    return arrays


def fingerprint(path: Path) -> Fingerprint:
    """Reads the whole file, a few megabytes at a time."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            digest.update(block)
            size += len(block)
    return Fingerprint(size, digest.hexdigest())
