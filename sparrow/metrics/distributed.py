"""Metrics over many processes.

Inside a jitted step over a sharded batch nothing is needed: the batch is the whole one, and so is the state that a
fixed-size metric makes of it. These functions are for processes that each evaluate rows of their own.

Every process calls the same function with its own state, and gets the same result. A grouped metric sends each row
to the owner of its key, so that a group whose rows are spread over processes is still one group; other metrics
exchange whole states. An exact metric is fed the rows of its own process, never an array that other processes hold
parts of.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

from sparrow.metrics.grouped import GroupedMetric, Summary
from sparrow.metrics.protocol import Metric, Result
from sparrow.metrics.rows import RowState
from sparrow.metrics.states import from_bytes, to_bytes

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
        """The number of processes."""
        return int(jax.process_count())

    def all_gather(self, data: bytes) -> list[bytes]:
        """Return the values of every process, in the order of the processes."""
        if self.size == 1:
            return [data]
        own = np.frombuffer(data, np.uint8)
        lengths = _gather(_as_words(own.size)).reshape(-1, 2) @ _WORD_VALUES
        pieces = [
            _gather(_piece(own, start, min(_PIECE, int(lengths.max()) - start)))
            for start in range(0, int(lengths.max()), _PIECE)
        ]
        received = np.concatenate(pieces, axis=1)
        return [received[process, :length].tobytes() for process, length in enumerate(lengths)]

    def all_to_all(self, data: Sequence[bytes]) -> list[bytes]:
        """``data[p]`` goes to process ``p``."""
        if self.size == 1:
            return list(data)
        own = [np.frombuffer(part, np.uint8) for part in data]
        words = np.concatenate([_as_words(part.size) for part in own])
        lengths = _gather(words).reshape(self.size, self.size, 2) @ _WORD_VALUES  # [from, to]
        piece, longest = _PIECE // self.size, int(lengths.max())
        pieces = [
            _transpose(np.stack([_piece(part, start, min(piece, longest - start)) for part in own]))
            for start in range(0, longest, piece)
        ]
        received = np.concatenate(pieces, axis=1)
        sizes = lengths[:, jax.process_index()]
        return [received[process, :length].tobytes() for process, length in enumerate(sizes)]


# A length as two 31-bit words: without 64-bit mode JAX would cut an int64.
_WORD_VALUES = np.array([1 << 31, 1], np.int64)


def _as_words(length: int) -> NDArray[np.int32]:
    return np.array([length >> 31, length & 0x7FFFFFFF], np.int32)


def _piece(data: NDArray[np.uint8], start: int, size: int) -> NDArray[np.uint8]:
    """``size`` bytes from ``start``, zeros beyond the end."""
    part = data[start : start + size]
    return np.pad(part, (0, size - part.size))


def _gather(array: NDArray[Any]) -> NDArray[Any]:
    """Return the arrays of all processes, (processes, *shape)."""
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array))


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

    swap = jax.shard_map(
        swap_rows,
        mesh=mesh,
        in_specs=sending,
        out_specs=receiving,
    )
    shard = jax.jit(swap)(everything).addressable_shards[0]
    return np.asarray(shard.data)[:, 0]
