"""Transfers between host and device. On a GPU through pinned memory, which is ten times and more as fast."""

from __future__ import annotations

import concurrent.futures
import ctypes
import functools
import os
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

T = TypeVar("T")
Array = npt.NDArray[Any]
SMALL: Final = 8 << 20
"""Bytes that one thread copies by itself."""


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


def is_in_host_memory(array: jax.Array) -> bool:
    """Return whether the device of an array uses the host's memory."""
    return pinned(next(iter(array.devices()))) is None


def copies_beside(arrays: Iterable[Any]) -> dict[int, jax.Array]:
    """Return copies of the arrays of a GPU in its own memory, by the id of each; empty where they do not fit.

    Such a copy of 40 GB takes a fiftieth of a second, one to the host one to several seconds.
    """
    own = {id(a): a for a in arrays if isinstance(a, jax.Array) and not is_in_host_memory(a)}
    try:
        if own and sum(array.nbytes for array in own.values()) <= _free(own.values()):
            made = {key: jnp.copy(array) for key, array in own.items()}
            return jax.block_until_ready(made)  # type: ignore[no-untyped-call, no-any-return]
    except jax.errors.JaxRuntimeError:  # the free memory is in pieces that are too small
        pass
    return {}


def _free(arrays: Iterable[jax.Array]) -> int:
    """Return the free bytes of the device of all arrays, less what steps need; zero where there are several devices."""
    [device, *others] = {device for array in arrays for device in array.devices()}
    stats = device.memory_stats()
    return 0 if others or not stats else int(stats["bytes_limit"] - stats["bytes_in_use"]) - _needed(device)


@functools.cache
def _needed(device: jax.Device) -> int:
    """Return the bytes that steps may need beside the state: the most so far when the first copy is made, or more."""
    stats = device.memory_stats()
    return int(max(stats["bytes_limit"] // 8, stats["peak_bytes_in_use"] - stats["bytes_in_use"]))


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
    threads, at = cores(), 0
    with concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="sparrow-copy") as pool:
        for block in given:
            size = -(-len(block) // (threads if block.nbytes > SMALL else 1)) or 1
            spans = [slice(first, first + size) for first in range(0, len(block), size)]
            to = made[at : at + len(block)]
            list(pool.map(np.copyto, [to[span] for span in spans], [block[span] for span in spans]))
            at += len(block)
    return made


def cores() -> int:
    """Return the cores that this process may use, less one for the loop; at least one."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(usable - 1, 1)
