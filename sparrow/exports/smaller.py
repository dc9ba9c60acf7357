"""Smaller tables in an export: float16, or rows of 8 or 4 bits with a scale and an offset of their own."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, Literal

import numpy as np

from sparrow.kernels.quantized import BITS, quantize, record_bytes
from sparrow.serving.tensors import Streamed

TableDtype = Literal["float16", "int8", "int4"]
TABLE_DTYPES: Final = ("float16", *BITS)


def table_dtype(dtype: TableDtype, dim: int) -> TableDtype:
    """Return the dtype of a table of rows of ``dim`` numbers: float16 where codes, scale and offset take more bytes.

    >>> [table_dtype("int8", dim) for dim in (1, 3, 4)]
    ['float16', 'float16', 'int8']
    """
    return "float16" if dtype in BITS and record_bytes(dim, BITS[dtype]) > 2 * dim else dtype


def smaller(table: Streamed, dtype: TableDtype | None) -> Streamed:
    """Return a table as an export holds it in another dtype; None: as it is."""
    if dtype is None:
        return table
    rows, dim = table.shape
    dtype = table_dtype(dtype, dim)
    if dtype not in BITS:
        return dataclasses.replace(table, dtype=dtype, blocks=(_halves(table.name, block) for block in table.blocks))
    bits = BITS[dtype]
    records = (_records(table.name, block, bits) for block in table.blocks)
    return Streamed(table.name, (rows, record_bytes(dim, bits)), "uint8", records)


def _halves(name: str, block: Any) -> Any:
    values = np.asarray(block, np.float32)
    most = float(np.finfo(np.float16).max)
    if values.size and not np.abs(values).max() <= most:
        raise ValueError(f"table '{name}': float16 holds numbers up to {most:g}, and the table has others, or NaN")
    return values.astype(np.float16)


def _records(name: str, block: Any, bits: int) -> Any:
    try:
        return quantize(block, bits)
    except ValueError as error:
        raise ValueError(f"table '{name}': {error}") from None
