"""A metric's state as bytes: to keep it in a file, or to send it to another process."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from sparrow.metrics.protocol import Metric

State = TypeVar("State")

_METRIC: Final = "metric"
_MAGIC: Final = b"sparrow metric 1"
_HEAD: Final = struct.Struct("<HBB")
"""Of an array: the bytes of its name, the place of its dtype in `_DTYPES`, the number of its dimensions."""
_DTYPES: Final = ("|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8")


def to_bytes(metric: Metric[State], state: State) -> bytes:
    """Return ``state`` as plain numbers, with the metric that made it. Nothing in it is parsed: sizes, then raw bytes.

    >>> from sparrow.metrics.averages import MAE
    >>> metric = MAE()
    >>> data = to_bytes(metric, metric.update(metric.init(), [1.0, 2.0], [1.0, 4.0]))
    >>> metric.compute(from_bytes(metric, data))
    1.0
    """
    return _packed({_METRIC: np.frombuffer(repr(metric).encode(), np.uint8), **metric.to_arrays(state)})


def from_bytes(metric: Metric[State], data: bytes) -> State:
    """Return the state of bytes from `to_bytes`; the metric must be the one that wrote the state."""
    damaged = ValueError("these bytes are no state of a metric, or are damaged")
    try:
        arrays = _unpacked(data)
        written = bytes(arrays.pop(_METRIC)).decode()
    except (struct.error, ValueError, LookupError):
        raise damaged from None
    if written != repr(metric):
        raise ValueError(f"the state was written by {written}, and cannot be read as one of {metric!r}")
    try:
        return metric.from_arrays(arrays)
    except KeyError:
        raise damaged from None


def _packed(arrays: Mapping[str, Any]) -> bytes:
    parts = [_MAGIC]
    for name, given in arrays.items():
        array, text = np.asarray(given), name.encode()
        dtype = array.dtype.newbyteorder("<")
        if dtype.str not in _DTYPES:
            raise TypeError(f"the state's '{name}' holds {array.dtype}; a state holds numbers of up to 64 bits")
        parts.append(_HEAD.pack(len(text), _DTYPES.index(dtype.str), array.ndim))
        parts.append(text + struct.pack(f"<{array.ndim}q", *array.shape))
        parts.append(array.astype(dtype, copy=False).tobytes())
    return b"".join(parts)


def _unpacked(data: bytes) -> dict[str, npt.NDArray[Any]]:
    if not data.startswith(_MAGIC):
        raise ValueError
    at, arrays = len(_MAGIC), {}
    while at < len(data):
        length, kind, dimensions = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        name = data[at : at + length].decode()
        at += length
        shape = struct.unpack_from(f"<{dimensions}q", data, at)
        at += 8 * dimensions
        dtype, size = np.dtype(_DTYPES[kind]), math.prod(shape)
        if min(shape, default=0) < 0 or at + size * dtype.itemsize > len(data):
            raise ValueError
        arrays[name] = np.frombuffer(data, dtype, size, at).reshape(shape).copy()
        at += size * dtype.itemsize
    return arrays
