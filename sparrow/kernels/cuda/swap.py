"""Rows between a cache on the GPU and records in pinned host memory: the functions of `sparrow.kernels.records`."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.kernels.cuda import machine, source
from sparrow.kernels.cuda.plan import NOTHING, Argument, Call, number, table_and_slots, together
from sparrow.kernels.ids.types import Changed
from sparrow.kernels.ids.words import words_of
from sparrow.kernels.records import Layout, record_numbers

STAGED_BYTES = 1 << 26
"""Memory of the device for rows that wait, in each direction; further ones move at once."""
_THREADS, _THREADS_APART = 256, 1024  # as in src/swap.cu
_BLOCKS = 8  # a multiprocessor
_BLOCKS_APART = 16  # half of them in each direction


class PinnedMemory:
    """Memory of the host, zeros at first, that kernels read and write.

    Attributes:
      array: (bytes,) uint8.
      address: (2,) uint32, where it begins: an operand of `swap`, `read` and `store`.
    """

    def __init__(self, size: int) -> None:
        self._shim = machine.here().shim
        self._pages: mmap.mmap | None = mmap.mmap(-1, max(size, 1))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._pages.madvise(mmap.MADV_HUGEPAGE)
        self.array: npt.NDArray[np.uint8] = np.frombuffer(self._pages, np.uint8, size)
        self._begin = self.array.ctypes.data
        self.address = words_of(np.array([self._begin], np.uint64))[0]
        if self._shim.sparrow_cuda_pin(ctypes.c_void_p(self._begin), ctypes.c_int64(len(self._pages))):
            reason = self._shim.sparrow_cuda_error().decode()
            raise MemoryError(f"{size} bytes of host memory cannot be pinned: {reason}")

    def close(self) -> None:
        """Give the memory back. Nothing may use it any more."""
        if self._pages is not None:
            self._shim.sparrow_cuda_unpin(ctypes.c_void_p(self._begin))
            self._pages = None
            del self.array

    __del__ = close


class Coming(NamedTuple):
    """Rows on their way to a cache: their records and slots, and the memory where they wait."""

    records: jax.Array
    slots: jax.Array
    staging: jax.Array


class Moving(NamedTuple):
    """Rows on their way, and the arrays that must stay until they are there."""

    held: tuple[jax.Array, ...]
    coming: Coming | None = None


def swap(
    layout: Layout,
    arrays: Sequence[jax.Array],
    address: jax.Array,
    records: int,
    fresh: Changed,
    gone: Changed,
    moving: Moving | tuple[()] = (),
    ahead: bool = False,
) -> tuple[list[jax.Array], Moving]:
    """Bring rows into the cache; those that leave it are stored beside the work that follows, until `finish`.

    Arrays that are donated are changed in place. ``ahead``: rows also come beside that work, and are in the cache after
    `finish`.
    """
    gpu, call = machine.here(), Call()
    held = [call.in_place(array) for array in arrays]
    cache, at = _cache(layout, held), call.input(address)
    _arrive(layout, call, cache, at, records, moving)
    leaving, coming = (_ordered(changed, records, arrays[0].shape[0]) for changed in (gone, fresh))
    out, room = _staging(call, layout, leaving), _staging(call, layout, coming) if ahead else NOTHING
    away = _moves(call, leaving, records, at, out, _staged(layout, leaving))
    blocks = _BLOCKS * gpu.cores
    call.launch(0, source.SWAP_LEAVE, blocks, _THREADS, [*cache, *away])
    near = _moves(call, coming, records, at, room, _staged(layout, coming) if ahead else 0)
    call.apart()
    call.launch(0, source.SWAP_APART, _BLOCKS_APART, _THREADS_APART, [*away, *near])
    call.leave()
    call.launch(0, source.SWAP_COME, blocks, _THREADS, [*cache, *near])
    made = call.bind(machine.load(gpu, [_module(layout)]))
    stay = (address, *leaving, made[len(arrays)])
    return made[: len(arrays)], Moving(stay, Coming(*coming, made[-1]) if ahead else None)


def finish(
    layout: Layout, arrays: Sequence[jax.Array], address: jax.Array, records: int, moving: Moving | tuple[()]
) -> list[jax.Array]:
    """Wait, on the device, until rows that have left the cache are stored, and others are in it."""
    if not moving:
        return list(arrays)
    call = Call()
    cache = _cache(layout, [call.in_place(array) for array in arrays])
    _arrive(layout, call, cache, call.input(address), records, moving)
    return call.bind(machine.load(machine.here(), [_module(layout)]))[: len(arrays)]


def store(layout: Layout, arrays: Sequence[jax.Array], address: jax.Array, records: int, gone: Changed) -> jax.Array:
    """Store rows; the result is there when they are stored."""
    call, gpu = Call(), machine.here()
    call.wait()
    cache, done = _cache(layout, [call.input(array) for array in arrays]), call.output((1,), jnp.int32)
    away = _moves(call, _ordered(gone, records, arrays[0].shape[0]), records, call.input(address), done, 0)
    call.launch(0, source.SWAP_LEAVE, _BLOCKS * gpu.cores, _THREADS, [*cache, *away])
    return call.bind(machine.load(gpu, [_module(layout)]))[0]


def read(
    layout: Layout, table: jax.Array, address: jax.Array, records: int, rows: jax.Array, slots: jax.Array
) -> jax.Array:
    """(N, dim): rows of a table: from the cache at ``slots``, or, where those are past its end, from the records."""
    if not len(rows):
        return jnp.zeros((0, table.shape[1]), table.dtype)
    call, gpu = Call(), machine.here()
    call.wait()
    arguments = [call.input(array) for array in (table, address, rows, slots)]
    arguments.append(call.output((len(rows), table.shape[1]), table.dtype))
    arguments += map(number, (len(rows), table.shape[0], records))
    call.launch(0, source.SWAP_READ, _BLOCKS * gpu.cores, _THREADS, arguments)
    return call.bind(machine.load(gpu, [_module(layout)]))[0]


def _arrive(
    layout: Layout, call: Call, cache: list[Argument], at: Argument, records: int, moving: Moving | tuple[()]
) -> None:
    """Wait for rows that are on their way, and bring those to the cache that come."""
    call.wait()
    if not moving:
        return
    for array in moving.held:
        call.input(array)
    if moving.coming is not None:
        lists = moving.coming[:2]
        near = _moves(call, lists, records, at, call.input(moving.coming.staging), _staged(layout, lists))
        call.launch(0, source.SWAP_ARRIVE, _BLOCKS * machine.here().cores, _THREADS, [*cache, *near])


def _ordered(changed: Changed, records: int, slots: int) -> tuple[jax.Array, jax.Array]:
    """Return the records of changed rows in ascending order, with their slots."""
    numbers = record_numbers(changed, records, slots).astype(jnp.uint32)
    ordered, own = jax.lax.sort((numbers, changed.rows), num_keys=1)
    return ordered, own


def _staged(layout: Layout, lists: Sequence[jax.Array]) -> int:
    return min(len(lists[0]), STAGED_BYTES // layout.bytes)


def _staging(call: Call, layout: Layout, lists: Sequence[jax.Array]) -> Argument:
    return call.output((_staged(layout, lists), layout.bytes // 4), jnp.uint32)


def _moves(
    call: Call, lists: Sequence[jax.Array], records: int, at: Argument, staging: Argument, staged: int
) -> list[Argument]:
    """Return the rows of `_ordered` as an argument of kernels."""
    numbers, slots = map(call.input, lists)
    return together([numbers, number(len(lists[0])), slots, number(records), at, number(staged), staging])


def _cache(layout: Layout, held: Sequence[Argument]) -> list[Argument]:
    return table_and_slots(held, [bool(part.numbers) for part in layout.parts])


def _module(layout: Layout) -> source.Module:
    vectors = [i for i, part in enumerate(layout.parts) if part.numbers and i > 0]
    numbers = [i for i, part in enumerate(layout.parts) if not part.numbers]
    if not layout.parts[0].numbers or any(layout.parts[i].bytes != 4 for i in numbers):
        raise ValueError("a record is a row of a table, and slots of float32")
    width = math.gcd(16, layout.bytes, *(part.bytes for part in layout.parts if part.numbers))
    if width < 4:
        raise ValueError(f"rows of {layout.parts[0].bytes} bytes are no multiple of 4; choose an even dim")
    slot_bytes = {layout.parts[i].bytes for i in vectors} or {0}
    if len(slot_bytes) > 1:
        raise ValueError(f"slots with vectors of one length are wanted, got {sorted(slot_bytes)} bytes")
    row, slot = layout.parts[0].bytes // width, slot_bytes.pop() // width
    return source.swap_module(width // 4, row, slot, len(vectors), len(numbers), layout.bytes // 4)
