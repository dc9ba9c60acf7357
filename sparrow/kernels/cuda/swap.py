"""Rows between a cache on the GPU and records in pinned host memory: the functions of `sparrow.kernels.records`."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.kernels.cuda import machine, source
from sparrow.kernels.cuda.plan import NOTHING, Argument, Call, number, together
from sparrow.kernels.ids.types import Changed
from sparrow.kernels.ids.words import words_of
from sparrow.kernels.records import Layout, Moving, record_numbers

STAGED_BYTES = 1 << 26
"""Rows that leave the cache in a step wait in so much memory of the device; further ones are stored at once."""
_THREADS = 256  # as in src/swap.cu
_BLOCKS, _BLOCKS_APART = 8, 1  # a multiprocessor


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


def swap(
    layout: Layout,
    arrays: Sequence[jax.Array],
    address: jax.Array,
    records: int,
    fresh: Changed,
    gone: Changed,
    moving: Moving = (),
) -> tuple[list[jax.Array], Moving]:
    """Bring rows into the cache; those that leave it are stored beside the work that follows, until `finish`.

    Arrays that are donated are changed in place.
    """
    staged = min(len(gone.rows), STAGED_BYTES // layout.bytes)
    call, held = _waiting(moving), list[Argument]()
    held += [call.in_place(array) for array in arrays]
    at, staging = call.input(address), call.output((staged, layout.bytes // 4), jnp.uint32)
    left = call.output((2 + staged,), jnp.uint32)
    sizes = [number(arrays[0].shape[0]), number(records)]
    cache = _cache(layout, held)
    gpu, leaving = machine.here(), _listed(call, gone, records, arrays[0].shape[0])
    blocks = _BLOCKS * gpu.cores
    call.launch(0, source.SWAP_LEAVE, blocks, _THREADS, [*cache, *leaving, at, staging, left, number(staged), *sizes])
    call.apart()
    call.launch(0, source.SWAP_STORE, _BLOCKS_APART * gpu.cores, _THREADS, [staging, left, number(staged), sizes[1]])
    call.leave()
    coming = _listed(call, fresh, records, arrays[0].shape[0])
    call.launch(0, source.SWAP_COME, blocks, _THREADS, [*cache, *coming, at, *sizes])
    made = call.bind(machine.load(gpu, [_module(layout)]))
    return made[: len(arrays)], tuple(made[len(arrays) :])


def finish(arrays: Sequence[jax.Array], moving: Moving) -> list[jax.Array]:
    """Wait, on the device, until rows that have left the cache are stored. The arrays do not change."""
    if not moving:
        return list(arrays)
    call = _waiting(moving)
    for array in arrays:
        call.in_place(array)
    return call.bind([])


def store(layout: Layout, arrays: Sequence[jax.Array], address: jax.Array, records: int, gone: Changed) -> jax.Array:
    """Store rows; the result is there when they are stored."""
    call, gpu = _waiting(()), machine.here()
    cache = _cache(layout, [call.input(array) for array in arrays])
    given = [*cache, *_listed(call, gone, records, arrays[0].shape[0]), call.input(address)]
    done = call.output((1,), jnp.int32)
    sizes = map(number, (0, arrays[0].shape[0], records))
    call.launch(0, source.SWAP_LEAVE, _BLOCKS * gpu.cores, _THREADS, [*given, done, NOTHING, *sizes])
    return call.bind(machine.load(gpu, [_module(layout)]))[0]


def read(
    layout: Layout, table: jax.Array, address: jax.Array, records: int, rows: jax.Array, slots: jax.Array
) -> jax.Array:
    """(N, dim): rows of a table: from the cache at ``slots``, or, where those are past its end, from the records."""
    if not len(rows):
        return jnp.zeros((0, table.shape[1]), table.dtype)
    call, gpu = _waiting(()), machine.here()
    arguments = [call.input(array) for array in (table, address, rows, slots)]
    arguments.append(call.output((len(rows), table.shape[1]), table.dtype))
    arguments += map(number, (len(rows), table.shape[0], records))
    call.launch(0, source.SWAP_READ, _BLOCKS * gpu.cores, _THREADS, arguments)
    return call.bind(machine.load(gpu, [_module(layout)]))[0]


def _waiting(moving: Moving) -> Call:
    """Return a call that waits for rows that are being stored, which it holds until then."""
    call = Call()
    for array in moving:
        call.input(array)
    call.wait()
    return call


def _listed(call: Call, changed: Changed, records: int, slots: int) -> list[Argument]:
    """Return the records of changed rows in ascending order, with their slots."""
    numbers = record_numbers(changed, records, slots).astype(jnp.uint32)
    ordered = jax.lax.sort((numbers, changed.rows), num_keys=1)
    return together([*map(call.input, ordered), number(len(changed.rows))])


def _cache(layout: Layout, held: Sequence[Argument]) -> list[Argument]:
    vectors, numbers = _slots(layout)
    slots = [one for kind in (vectors, numbers) for one in [held[i] for i in kind] or [NOTHING]]
    return together([held[0], *slots])


def _slots(layout: Layout) -> tuple[list[int], list[int]]:
    """Return the numbers of the slots with vectors, and of slots with one number per row."""
    vectors = [i for i, part in enumerate(layout.parts) if part.numbers and i > 0]
    return vectors, [i for i, part in enumerate(layout.parts) if not part.numbers]


def _module(layout: Layout) -> source.Module:
    vectors, numbers = _slots(layout)
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
