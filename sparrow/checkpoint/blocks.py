"""Tables in files, a block of rows at a time: memory never holds a second copy of a large table.

The files are NumPy's ``.npy``; a dtype that NumPy does not know, such as bfloat16, is kept as integers of its
size, and the checkpoint's ``about.json`` names it.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.checkpoint.errors import Damaged
from sparrow.checkpoint.extents import Extent, add
from sparrow.checkpoint.spread import BLOCK_BYTES, Spread
from sparrow.checkpoint.transfer import blocks as host_blocks
from sparrow.checkpoint.transfer import copied, is_in_host_memory

Array = npt.NDArray[Any]
PINNED_BYTES: Final = 64 << 20
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
        """The shape of these rows alone."""
        pieces = 1 if self.spread is None else self.spread.layout.columns
        return (self.num_rows, *(size * pieces for size in self.array.shape[1:]))

    @property
    def nbytes(self) -> int:
        """The bytes of these rows."""
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
        """Return the rows that this process holds, each piece with its first row; all processes call this together."""
        if self.spread is None:
            raise ValueError("tables on one device are written by `blocks`")
        yield from self.spread.pieces(self.array, self.start, self.start + self.num_rows)


def block_rows(row_bytes: int, block_bytes: int = BLOCK_BYTES) -> int:
    """Return the number of rows in a block: a power of two.

    >>> block_rows(256)
    16384
    """
    return 1 << (max(1, block_bytes // max(1, row_bytes)).bit_length() - 1)


def snapshot(rows: TableRows) -> list[Array]:
    """Return a copy of the rows in plain memory, which training does not change; several threads copy."""
    made = copied(rows.shape, rows.array.dtype, rows.blocks())
    size = block_rows(rows.nbytes // max(rows.num_rows, 1), PINNED_BYTES)
    return [made[first : first + size] for first in range(0, len(made), size)]


class Written(NamedTuple):
    """A file's size and the CRC-32 of its bytes."""

    size: int
    crc: int


def write(path: Path, shape: tuple[int, ...], dtype: Any, blocks: Iterable[Array]) -> Written:
    """Write the rows to a file; it is not yet flushed to the disk."""
    header = header_of(shape, dtype)
    size, crc = len(header), zlib.crc32(header)
    with path.open("wb", buffering=0) as file:
        _write_all(file, header)
        for block in blocks:
            data: Any = as_bytes(block)
            _write_all(file, data)
            size, crc = size + len(data), zlib.crc32(data, crc)
    return Written(size, crc)


class Reader:
    """Rows of a file in any order, for a process that needs a part of them; notes the checksums of its parts.

    After an error it returns zeros: the caller takes all rows, and `problem` holds the reason.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: Any) -> None:
        self._path, self._shape, self._dtype = path, shape, jnp.dtype(dtype)
        self._header = len(header_of(shape, dtype))
        self._row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * self._dtype.itemsize
        self.extents: list[Extent] = []
        self.problem: str | None = None
        self.change: Callable[[int, Array], Array] = lambda first, rows: rows  # what newer links of a chain replace

    def between(self, first: int, last: int) -> Array:
        """Return rows ``first`` to ``last``."""
        size, place = (last - first) * self._row_bytes, self._header + first * self._row_bytes
        data = bytearray(size)
        try:
            with self._path.open("rb", buffering=0) as file:
                file.seek(place)
                data = _exactly(file, size, self._path)
        except (OSError, Damaged) as error:
            self.problem = self.problem or str(error)
        add(self.extents, Extent(place, size, zlib.crc32(data)))
        rows: Array = np.frombuffer(data, np.uint8).view(self._dtype).reshape(last - first, *self._shape[1:])
        return self.change(first, rows)

    def with_header(self) -> list[Extent]:
        """Return the extents, and that of the header."""
        header = header_of(self._shape, self._dtype)
        return [Extent(0, len(header), zlib.crc32(header)), *self.extents]


def read(path: Path, shape: tuple[int, ...], dtype: Any, written: Written) -> Iterator[tuple[int, Array]]:
    """Yield blocks of rows with the number of the first; at the end raise `Damaged` if the checksum is wrong."""
    header = header_of(shape, dtype)
    row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * jnp.dtype(dtype).itemsize
    size = block_rows(row_bytes)
    with path.open("rb", buffering=0) as file:
        crc = zlib.crc32(_exactly(file, len(header), path))
        for first in range(0, shape[0], size):
            count = min(size, shape[0] - first)
            data = _exactly(file, count * row_bytes, path)
            crc = zlib.crc32(data, crc)
            yield first, np.frombuffer(data, np.uint8).view(jnp.dtype(dtype)).reshape(count, *shape[1:])
        if file.read(1) or crc != written.crc:
            raise Damaged(f"{path}: its bytes are not those that were written")


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


def as_bytes(block: Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of rows, in the order of the file."""
    return np.ascontiguousarray(block).reshape(-1).view(np.uint8)


def _write_all(file: io.FileIO, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _exactly(file: io.FileIO, count: int, path: Path) -> bytearray:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        got = file.readinto(view)
        if not got:
            raise Damaged(f"{path}: it was cut off")
        view = view[got:]
    return data
