"""Rows as codes of few bits with a scale and an offset per row, and back: ``value = code * scale + offset``.

A row is a record of bytes: its codes (of 4 bits: two in a byte, the first one in the low half), then its scale and its
offset as float16. The codes are chosen for the rounded scale and offset, so that a value is at most half a scale away.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.kernels.native.host import host_library

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

BITS: Final = {"int8": 8, "int4": 4}
"""The bits of a code, by the name of the dtype."""


def record_bytes(dim: int, bits: int) -> int:
    """Return the bytes of a row.

    >>> record_bytes(64, 8), record_bytes(5, 4)
    (68, 7)
    """
    return (dim * bits + 7) // 8 + 4


def quantize(rows: Any, bits: int) -> Bytes:
    """Return the records of rows, (rows, `record_bytes`).

    >>> quantize(np.array([[0.0, 1.0, 255.0]], np.float32), 8)[0, :3].tolist()
    [0, 1, 255]
    """
    values = np.asarray(rows, np.float32)
    most, levels = float(np.finfo(np.float16).max), 2**bits - 1
    if values.size and not np.abs(values).max() <= most:
        raise ValueError(f"numbers of {bits} bits are between -{most:g} and {most:g}; the table has others, or NaN")
    low = values.min(axis=1, initial=0) if not values.shape[1] else values.min(axis=1)
    high = values.max(axis=1) if values.shape[1] else low
    offset = _rounded(low, np.float16(-np.inf))  # not above the least value
    scale = _rounded((high - offset.astype(np.float32)) / levels, np.float16(np.inf))  # the codes reach the largest
    unit = np.where(scale > 0, scale, 1).astype(np.float32)
    steps = (values - offset.astype(np.float32)[:, None]) / unit[:, None]
    codes = np.clip(np.rint(steps), 0, levels).astype(np.uint8)
    if bits == 4:
        codes = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2)))
        codes = codes[:, ::2] | codes[:, 1::2] << 4
    ends = np.stack([scale, offset], axis=1).astype("<f2").view(np.uint8)
    return np.concatenate([codes, ends], axis=1)


def _rounded(values: Floats, towards: np.float16) -> npt.NDArray[np.float16]:
    """Return values as float16, rounded in one direction."""
    made = values.astype(np.float16)
    wrong = made.astype(np.float32) > values if towards < 0 else made.astype(np.float32) < values
    return np.where(wrong, np.nextafter(made, towards), made)


def dequantize(records: Any, dim: int, bits: int) -> Any:
    """Return rows as float32 from their records."""
    codes, ends = records[..., :-4], records[..., -4:]
    if bits == 4:
        codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:-1], -1)[..., :dim]
    halves = np.ascontiguousarray(ends).view("<f2").astype(np.float32)
    return codes.astype(np.float32) * halves[..., :1] + halves[..., 1:]


@dataclasses.dataclass(frozen=True)
class QuantizedTable:
    """A table of records, which may stay in its file.

    Attributes:
      records: (rows, `record_bytes`).
      dim: numbers of a row.
      bits: bits of a number.
    """

    records: Bytes
    dim: int
    bits: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.records), self.dim

    def __len__(self) -> int:
        return len(self.records)

    def fill(self, ids: npt.NDArray[np.int32], out: Floats) -> None:
        """Write the rows of ids to the rows of ``out``; an id that is not in the table has zeros."""
        if not fill_rows(np.array([described(self)], np.int64), np.asarray(ids, np.int32)[None], out):
            inside = (ids >= 0) & (ids < len(self))
            out[...] = dequantize(self.records[np.where(inside, ids, 0)], self.dim, self.bits)
            out[~inside] = 0

    def take(self, ids: npt.NDArray[np.int32], axis: int = 0) -> Floats:
        """Return the rows of ids, as an array's ``take`` along axis 0 does."""
        out = np.empty((len(ids), self.dim), np.float32)
        self.fill(ids, out)
        return out


KINDS: Final = {"float32": 0, "float16": 1, "bfloat16": 2}
"""The numbers by which compiled code knows dtypes; codes have their bits instead."""


def described(table: Any, ids: int = 0, column: int = 0) -> tuple[int, ...]:
    """Return a lookup for `fill_rows`: a table, which must outlive it, the row of its ids, its column in ``out``."""
    kind, held = (table.bits, table.records) if isinstance(table, QuantizedTable) else (KINDS[table.dtype.name], table)
    return held.ctypes.data, *table.shape, kind, ids, column


def fill_rows(lookups: npt.NDArray[np.int64], ids: npt.NDArray[np.int32], out: Floats) -> bool:
    """Write the rows of all lookups, `described` each, to ``out``; an id that is not in its table has zeros.

    Args:
      lookups: (lookups, 6).
      ids: (features, rows).
      out: its first rows are written to.

    Returns:
      Whether they were written: not without a compiler.
    """
    loaded = host_library("quantized")
    if loaded is None:
        return False
    wanted = np.ascontiguousarray(ids)
    loaded.sparrow_fill_rows(lookups, len(lookups), wanted, wanted.shape[1], out, out.strides[0] // 4)
    return True
