"""Named arrays in the safetensors format, written block by block while other threads run.

A file is 8 bytes, the length n of its header (little-endian); n bytes of JSON, ``{name: {"dtype", "shape",
"data_offsets": [begin, end]}}``, filled up with spaces; and then the arrays, row-major and little-endian, one after the
other without gaps. The writer of the package `safetensors` needs a second copy of all arrays in memory, and no other
thread of Python runs while it makes the copy.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CODES: Final = {"bool": "BOOL", "bfloat16": "BF16"} | {
    f"{kind}{bits}": f"{code}{bits}"
    for kind, code in (("float", "F"), ("int", "I"), ("uint", "U"))
    for bits in ((16, 32, 64) if kind == "float" else (8, 16, 32, 64))
}
"""The name of each dtype in the format."""

ALIGNMENT: Final = 64
"""The arrays begin at a multiple of this number of bytes."""


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
        return math.prod(self.shape) * dtype_of(self.dtype).itemsize


def dtype_of(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype of that name, bfloat16 included."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def streamed(arrays: Mapping[str, Array]) -> list[Streamed]:
    """Return complete arrays as `write_tensors` takes them."""
    own = {name: np.asarray(array).astype(array.dtype.newbyteorder("<"), copy=False) for name, array in arrays.items()}
    return [Streamed(name, array.shape, array.dtype.name, [array]) for name, array in own.items()]


def write_tensors(path: Path, arrays: Iterable[Streamed], sum_up: Callable[[Any], None]) -> int:
    """Write the arrays in one pass, wait for the disk, and return the size; memory holds one block at a time.

    ``sum_up`` is called with all bytes, piece by piece, in their order.
    """
    # Wide dtypes first: then each array begins at a multiple of its dtype's size, for all shapes.
    arrays = sorted(arrays, key=lambda array: -dtype_of(array.dtype).itemsize)
    header: dict[str, Any] = {}
    end = 0
    for array in arrays:
        begin, end = end, end + array.bytes
        header[array.name] = {"dtype": CODES[array.dtype], "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with path.open("wb") as file:

        def put(data: Any) -> None:
            file.write(data)
            sum_up(data)

        put(struct.pack("<Q", len(text)))
        put(text)
        for array in arrays:
            for block in array.blocks:
                put(np.ascontiguousarray(block).reshape(-1).view(np.uint8))
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    if size != 8 + len(text) + end:
        raise ValueError(f"{path}: the blocks hold {size - 8 - len(text)} bytes, their shapes give {end}")
    return size
