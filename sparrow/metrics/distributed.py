"""Metrics over many processes.

Inside a jitted step over a sharded batch nothing is needed: the batch is complete, and so is the state that a
fixed-size metric makes of it. These functions are for processes that each evaluate rows of their own.

Every process calls the same function with its own state, and gets the same result. A grouped metric sends each row
to the owner of its key, so that a group whose rows are spread over processes is still one group; other metrics
exchange whole states. An exact metric is fed the rows of its own process, never an array that other processes hold
parts of.
"""

from __future__ import annotations

import functools
import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import jax
import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from sparrow.metrics.grouped import GroupedMetric, Summary
from sparrow.metrics.protocol import Metric, Result
from sparrow.metrics.rows import RowState

State = TypeVar("State")

_PIECE = 1 << 26  # bytes that one process hands to a collective at a time


class Exchange(Protocol):
    """How processes talk: two collectives over bytes. All processes call the same ones in the same order."""

    @property
    def size(self) -> int:
        """The number of processes."""

    def all_gather(self, data: bytes) -> list[bytes]:
        """Return the values of every process, in the order of the processes."""

    def all_to_all(self, data: Sequence[bytes]) -> list[bytes]:
        """``data[p]`` goes to process ``p``; the result is what each process had for this one."""


def merge_across_processes(metric: Metric[State], state: State, exchange: Exchange | None = None) -> State:
    """Return the merged state of all processes, on each of them. Exact metrics then hold all rows on each."""
    exchange = exchange or JaxExchange()
    gathered = exchange.all_gather(to_bytes(metric, state))
    return functools.reduce(metric.merge, (from_bytes(metric, data) for data in gathered))


def route_groups(metric: GroupedMetric, state: RowState, exchange: Exchange | None = None) -> RowState:
    """Return the rows, of all processes, of the groups that this process owns."""
    exchange = exchange or JaxExchange()
    parts = [to_bytes(metric, part) for part in metric.partition(state, exchange.size)]
    return functools.reduce(metric.merge, (from_bytes(metric, data) for data in exchange.all_to_all(parts)))


def evaluate_across_processes(metric: Metric[State], state: State, exchange: Exchange | None = None) -> Result:
    """`Metric.evaluate` of all processes' rows together, the same on each of them."""
    exchange = exchange or JaxExchange()
    if not isinstance(metric, GroupedMetric):
        return metric.evaluate(merge_across_processes(metric, state, exchange))
    owned: Summary = metric.summarize(route_groups(metric, state, exchange))  # type: ignore[arg-type]
    summaries = [json.loads(data) for data in exchange.all_gather(json.dumps(owned).encode())]
    return metric.finish({key: sum(summary[key] for summary in summaries) for key in owned})


def compute_across_processes(metric: Metric[State], state: State, exchange: Exchange | None = None) -> float:
    """`Metric.compute` of all processes' rows together, the same on each of them."""
    return evaluate_across_processes(metric, state, exchange).value


class JaxExchange:
    """Bytes over JAX collectives, between the processes of ``jax.distributed``; with one process, nothing moves."""

    @property
    def size(self) -> int:
        return int(jax.process_count())

    def all_gather(self, data: bytes) -> list[bytes]:
        return self.all_to_all([data] * self.size)

    def all_to_all(self, data: Sequence[bytes]) -> list[bytes]:
        if self.size == 1:
            return list(data)
        own = [np.frombuffer(part, np.uint8) for part in data]
        lengths = _gather_lengths([part.size for part in own])  # [from, to]
        piece, longest = _PIECE // self.size, int(lengths.max())
        pieces = [
            _transpose(np.stack([_piece(part, start, min(piece, longest - start)) for part in own]))
            for start in range(0, longest, piece)
        ]
        received = np.concatenate(pieces, axis=1)
        sizes = lengths[:, jax.process_index()]
        return [received[process, :length].tobytes() for process, length in enumerate(sizes)]


def _gather_lengths(lengths: Sequence[int]) -> NDArray[np.int64]:
    """Return the lengths of all processes, (processes, lengths): as bytes, for JAX cuts an int64."""
    from jax.experimental import multihost_utils

    received = np.asarray(multihost_utils.process_allgather(np.array(lengths, np.int64).view(np.uint8)))
    return np.ascontiguousarray(received).view(np.int64).reshape(-1, len(lengths))


def _piece(data: NDArray[np.uint8], start: int, size: int) -> NDArray[np.uint8]:
    """``size`` bytes from ``start``, zeros beyond the end."""
    part = data[start : start + size]
    return np.pad(part, (0, size - part.size))


def _transpose(parts: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Row ``p`` goes to process ``p``, the result's row ``p`` came from there; by one device of each process."""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    first_devices = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(np.array([first_devices[process] for process in sorted(first_devices)]), ("process",))
    sending, receiving = PartitionSpec("process"), PartitionSpec(None, "process")  # type: ignore[no-untyped-call]
    sharding = NamedSharding(mesh, sending)
    everything = jax.make_array_from_process_local_data(sharding, parts[None])  # type: ignore[no-untyped-call]

    def swap_rows(rows: jax.Array) -> Any:
        return jax.lax.all_to_all(rows, "process", split_axis=1, concat_axis=0, tiled=True)  # type: ignore[no-untyped-call]

    swap = jax.shard_map(swap_rows, mesh=mesh, in_specs=sending, out_specs=receiving)
    shard = jax.jit(swap)(everything).addressable_shards[0]
    return np.asarray(shard.data)[:, 0]


_METRIC: Final = "metric"
_MAGIC: Final = b"sparrow metric 1"
_HEAD: Final = struct.Struct("<HBB")
"""The header of an array: the bytes of its name, the place of its dtype in `_DTYPES`, the number of its dimensions."""
_DTYPES: Final = ("|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8")


def to_bytes(metric: Metric[State], state: State) -> bytes:
    """Return ``state`` as plain numbers, with the metric that made it. Nothing in it is parsed: sizes, then raw bytes.

    >>> from sparrow.metrics.pointwise import MAE
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
