"""Transfers between host and device. On a GPU through pinned memory, which is ten times and more as fast."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

import jax
import numpy as np
import numpy.typing as npt

from sparrow.embedding.host.planner import parts
from sparrow.embedding.host.workers import Workers

T = TypeVar("T")
Array = npt.NDArray[Any]
SMALL: Final = 8 << 20
"""Bytes that one thread copies by itself."""
KEPT_SIZES: Final = 16
"""Sizes of buffers that are kept to be used again; pinned memory of others goes back to JAX."""


@functools.cache
def pinned(device: jax.Device) -> Any:
    """Return the pinned memory of the host as a sharding; None: a device that uses the host's memory, or has none."""
    if device.platform == "cpu" or "pinned_host" not in {memory.kind for memory in device.addressable_memories()}:
        return None
    return jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")


def view(array: jax.Array) -> Array:
    """Return the memory of an array in host memory, once it is computed, without a copy."""
    jax.block_until_ready(array)  # type: ignore[no-untyped-call]
    kind = np.dtype(array.dtype)
    nbytes = array.size * kind.itemsize
    if not nbytes:
        return np.empty(array.shape, kind)
    memory = (ctypes.c_uint8 * nbytes).from_address(array.unsafe_buffer_pointer())
    memory.held = array  # type: ignore[attr-defined]  # as long as somebody uses the view
    made: Array = np.frombuffer(memory, np.uint8).view(kind).reshape(array.shape)  # type: ignore[call-overload]
    return made


class Buffer(NamedTuple):
    """Memory of the host to fill.

    Attributes:
      values: the array to write to.
      held: the array in pinned memory that it belongs to; None: plain memory.
    """

    values: Array
    held: jax.Array | None


class Sender:
    """Buffers for rows on their way to the device. Pinned ones are used again once their content is there."""

    def __init__(self, device: jax.Device) -> None:
        self._device = device
        self._pinned = pinned(device)
        self._sent: dict[Any, deque[tuple[jax.Array, Buffer]]] = {}
        self._lock = threading.Lock()

    def buffer(self, shape: tuple[int, ...], dtype: Any) -> Buffer:
        """Return memory with any content."""
        if self._pinned is None:
            return Buffer(np.empty(shape, dtype), None)  # a CPU goes on using it
        key = shape, np.dtype(dtype)
        with self._lock:
            sent = self._sent[key] = self._sent.pop(key, deque())  # the sizes used last are kept
            if len(self._sent) > KEPT_SIZES:
                del self._sent[next(iter(self._sent))]
            if sent and sent[0][0].is_ready():  # type: ignore[attr-defined]
                return sent.popleft()[1]
        held = jax.device_put(np.zeros(shape, dtype), self._pinned)
        return Buffer(view(held), held)

    def send(self, buffer: Buffer) -> jax.Array:
        """Start the copy to the device."""
        if buffer.held is None:
            on_device: jax.Array = jax.device_put(buffer.values, self._device)
            return on_device
        made: jax.Array = jax.device_put(buffer.held, jax.sharding.SingleDeviceSharding(self._device))
        with self._lock:
            self._sent.setdefault((buffer.values.shape, buffer.values.dtype), deque()).append((made, buffer))
        return made


def is_in_host_memory(array: jax.Array) -> bool:
    """Return whether the device of an array uses the host's memory."""
    return pinned(next(iter(array.devices()))) is None


def to_host(arrays: T) -> T:
    """Start the copy of an array, or of a tree of them, to host memory; `on_host` waits for one."""
    place = pinned(next(iter(jax.tree.leaves(arrays)[0].devices())))
    return arrays if place is None else jax.device_put(arrays, place)


def on_host(array: jax.Array) -> Array:
    """Return the values of an array that `to_host` returned."""
    return np.asarray(array) if is_in_host_memory(array) else view(array)


def blocks(array: jax.Array, start: int, stop: int, rows: int) -> Iterator[tuple[int, Array]]:
    """Yield rows ``start`` to ``stop`` in blocks of ``rows``, a power of two, each with the number of its first row.

    Each block is on its way while the one before it is in use.
    """
    length = array.shape[0]
    coming: tuple[int, slice, jax.Array] | None = None
    for first in range(start, stop, rows):
        count = min(rows, stop - first)
        # Powers of two, rounded up where needed: a few compiled programs serve tables of all sizes.
        width = min(1 << (count - 1).bit_length(), length)
        at = min(first, length - width)
        following = first, slice(first - at, first - at + count), to_host(_cut(array, at, width))
        if coming is not None:
            yield coming[0], on_host(coming[2])[coming[1]]
        coming = following
    if coming is not None:
        yield coming[0], on_host(coming[2])[coming[1]]


@functools.partial(jax.jit, static_argnums=2)
def _cut(array: jax.Array, first: int, count: int) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(array, first, count)


def copied(shape: tuple[int, ...], dtype: Any, given: Iterable[Array]) -> Array:
    """Return blocks of rows as one array in plain memory; several threads copy."""
    made: Array = np.empty(shape, dtype)
    workers, at = Workers(), 0
    for block in given:
        spans = parts(len(block), workers.threads if block.nbytes > SMALL else 1)
        pairs = [(made[at + span.start : at + span.stop], block[span.start : span.stop]) for span in spans]
        workers.each(lambda pair: np.copyto(*pair), pairs)
        at += len(block)
    workers.close()
    return made
