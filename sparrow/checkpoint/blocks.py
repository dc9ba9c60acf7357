"""Tables in files, a block of rows at a time: memory never holds a second copy of a large table.

The files are NumPy's ``.npy``; a dtype that NumPy does not know, such as bfloat16, is kept as integers of its
size, and the checkpoint's ``about.json`` names it.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow import processes
from sparrow.checkpoint.errors import Damaged, altered
from sparrow.checkpoint.spread import BLOCK_BYTES, Spread
from sparrow.checkpoint.transfer import blocks as host_blocks
from sparrow.checkpoint.transfer import is_in_host_memory

Array = npt.NDArray[Any]
PINNED_BYTES: Final = 16 << 20
"""Bytes that a GPU sends at a time through pinned memory, of which two blocks are held."""


class Key(NamedTuple):
    """The logical name of rows: of a table, or of one of its slots."""

    table: str
    slot: str | None = None

    def __str__(self) -> str:
        return f"table '{self.table}'" if self.slot is None else f"slot '{self.slot}' of table '{self.table}'"


class TableRows(NamedTuple):
    """Rows ``start`` to ``start + num_rows`` of an array that may hold several tables; a NumPy array: in host memory.

    ``spread``: where the rows are, if they are spread over the devices of a mesh; None: in their order.
    """

    array: Any
    start: int
    num_rows: int
    spread: Spread | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        pieces = 1 if self.spread is None else self.spread.layout.columns
        return (self.num_rows, *(size * pieces for size in self.array.shape[1:]))

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * int(self.array.dtype.itemsize)

    def blocks(self) -> Iterator[Array]:
        """Return the rows in order, on the host: each block is on its way while the previous one is in use.

        A GPU sends them through pinned memory. A block keeps its memory as long as it is held.
        """
        if self.spread is not None:
            yield from self.spread.blocks(self.array, self.start, self.start + self.num_rows)
            return
        rows, end = self.array.shape[0], self.start + self.num_rows
        if isinstance(self.array, np.ndarray):
            size = block_rows(self.array.nbytes // rows, PINNED_BYTES)
            yield from (self.array[first : min(first + size, end)] for first in range(self.start, end, size))
            return
        size = block_rows(self.array.nbytes // rows, BLOCK_BYTES if is_in_host_memory(self.array) else PINNED_BYTES)
        for _, block in host_blocks(self.array, self.start, end, size):
            yield block

    def pieces(self) -> Iterator[tuple[int, Array]]:
        """Yield the rows that this process writes, each piece with its first row; all processes call this together."""
        if processes.count() == 1:
            first = 0
            for block in self.blocks():
                yield first, block
                first += len(block)
        elif self.spread is None:
            raise ValueError("tables on one device cannot be saved by several processes; give the embedder a mesh")
        else:
            yield from self.spread.pieces(self.array, self.start, self.start + self.num_rows)


def block_rows(row_bytes: int, block_bytes: int = BLOCK_BYTES) -> int:
    """Return the number of rows in a block: a power of two.

    >>> block_rows(256)
    16384
    """
    return 1 << (max(1, block_bytes // max(1, row_bytes)).bit_length() - 1)


class Written(NamedTuple):
    """A file's size and the CRC-32 of its bytes."""

    size: int
    crc: int


def write(path: Path, shape: tuple[int, ...], dtype: Any, blocks: Iterable[Array]) -> Written:
    """Write the rows to a file; it is not yet flushed to the disk."""
    header = header_of(shape, dtype)
    size, crc = len(header), zlib.crc32(header)
    with path.open("wb") as file:
        file.write(header)
        for block in blocks:
            data: Any = as_bytes(block)
            file.write(data)
            size, crc = size + len(data), zlib.crc32(data, crc)
    return Written(size, crc)


def read(path: Path, shape: tuple[int, ...], dtype: Any, written: Written) -> Iterator[tuple[int, Array]]:
    """Yield blocks of rows with the number of the first; at the end raise `Damaged` if the checksum is wrong."""
    header, row_bytes = header_of(shape, dtype), math.prod(shape[1:]) * int(jnp.dtype(dtype).itemsize)
    size = block_rows(row_bytes)
    with path.open("rb") as file:
        crc = zlib.crc32(exactly(file, len(header), path))
        for first in range(0, shape[0], size):
            count = min(size, shape[0] - first)
            data = exactly(file, count * row_bytes, path)
            crc = zlib.crc32(data, crc)
            yield first, rows_in(data, count, shape, dtype)
        if file.read(1) or crc != written.crc:
            raise altered(path)


def file_size(shape: tuple[int, ...], dtype: Any) -> int:
    """Return the bytes of the file that holds rows of this shape.

    >>> file_size((3, 2), "float32")
    152
    """
    return len(header_of(shape, dtype)) + math.prod(shape) * int(jnp.dtype(dtype).itemsize)


def header_of(shape: tuple[int, ...], dtype: Any) -> bytes:
    """Return the first bytes of an .npy file."""
    kind = jnp.dtype(dtype)
    known = kind if kind.kind in "biufc" else np.dtype(f"u{kind.itemsize}")
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": np.lib.format.dtype_to_descr(known), "fortran_order": False, "shape": shape}
    )
    return header.getvalue()


def rows_in(data: bytes, count: int, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return ``count`` rows of a table of this shape, from their bytes."""
    rows: Array = np.frombuffer(data, np.uint8).view(jnp.dtype(dtype)).reshape(count, *shape[1:])
    return rows


def as_bytes(block: Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of rows, in the order of the file."""
    return np.ascontiguousarray(block).reshape(-1).view(np.uint8)


def exactly(file: BinaryIO, count: int, path: Path) -> bytes:
    """Return the next bytes of a file, or raise `Damaged` where it ends before."""
    data = file.read(count)
    if len(data) != count:
        raise Damaged(f"{path}: it was cut off")
    return data
