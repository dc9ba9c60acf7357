"""A metric's state as bytes: to keep it in a file, or to send it to another process."""

from __future__ import annotations

import io
from typing import Any, TypeVar

import numpy as np

from sparrow.metrics.protocol import Metric

State = TypeVar("State")

_METRIC = "metric"


def to_bytes(metric: Metric[State], state: State) -> bytes:
    """``state`` as an ``.npz`` archive of plain numbers (nothing in it is code), with the metric that made it.

    >>> from sparrow.metrics.averages import MAE
    >>> metric = MAE()
    >>> data = to_bytes(metric, metric.update(metric.init(), [1.0, 2.0], [1.0, 4.0]))
    >>> metric.compute(from_bytes(metric, data))
    1.0
    """
    arrays: dict[str, Any] = {_METRIC: np.frombuffer(repr(metric).encode(), np.uint8), **metric.to_arrays(state)}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def from_bytes(metric: Metric[State], data: bytes) -> State:
    """Return the state of bytes from `to_bytes`; the metric must be the one that wrote the state."""
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        arrays = dict(archive)
    written = bytes(arrays.pop(_METRIC)).decode()
    if written != repr(metric):
        raise ValueError(f"the state was written by {written}, and cannot be read as one of {metric!r}")
    return metric.from_arrays(arrays)
