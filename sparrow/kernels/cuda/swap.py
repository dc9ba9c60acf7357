"""Rows between a cache on the GPU and records in pinned host memory: the functions of `sparrow.kernels.records`."""

from __future__ import annotations

import ctypes
import math
import mmap
import weakref
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.kernels.cuda import machine, source, tuning
from sparrow.kernels.cuda.launches import add_sort, sort_passes
from sparrow.kernels.cuda.plan import NOTHING, Argument, Call, number, table_and_slots, together
from sparrow.kernels.ids.types import Changed
from sparrow.kernels.ids.words import words_of
from sparrow.kernels.records import Layout, record_numbers

STAGED_BYTES = 1 << 26
"""Memory of the device for rows that leave while others come; further ones are stored before."""
_THREADS = 256  # as in src/swap.cu
_BLOCKS = 8  # a multiprocessor


class PinnedMemory:
    """Memory of the host, zeros at first, that kernels read and write.

    Attributes:
      array: (bytes,) uint8.
      address: (2,) uint32, where it begins: an operand of `swap`, `read` and `store`.
    """

    def __init__(self, size: int) -> None:
        shim, pages = machine.here().shim, mmap.mmap(-1, max(size, 1))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            pages.madvise(mmap.MADV_HUGEPAGE)
        self.array: npt.NDArray[np.uint8] = np.frombuffer(pages, np.uint8, size)
        begin = self.array.ctypes.data
        self.address = words_of(np.array([begin], np.uint64))[0]
        if shim.sparrow_cuda_pin(ctypes.c_void_p(begin), ctypes.c_int64(len(pages))):
            reason = shim.sparrow_cuda_error().decode()
            raise MemoryError(f"{size} bytes of host memory cannot be pinned: {reason}")
        # Before the pages are given back; not when the process ends, whose kernels may still use them.
        weakref.finalize(self, shim.sparrow_cuda_unpin, ctypes.c_void_p(begin)).atexit = False


def swap(
    layout: Layout, arrays: Sequence[jax.Array], address: jax.Array, records: int, fresh: Changed, gone: Changed
) -> list[jax.Array]:
    """Store the rows that leave the cache, and bring others; arrays that are donated are changed in place."""
    if not len(fresh.rows):
        return list(arrays)
    gpu, call = machine.here(), Call()
    cache, at = _cache(layout, [call.in_place(array) for array in arrays]), call.input(address)
    tuned = tuning.for_sort(max(len(fresh.rows), len(gone.rows)), gpu.cores)
    call.fork()
    away = _moves(call, layout, arrays, at, records, gone, tuned, STAGED_BYTES)
    call.main()
    near = _moves(call, layout, arrays, at, records, fresh, tuned)
    call.join()
    blocks = _BLOCKS * gpu.cores
    call.launch(0, source.SWAP_LEAVE, blocks, _THREADS, [*cache, *away])
    call.launch(0, source.SWAP_MOVE, blocks, _THREADS, [*cache, *away, *near])
    return _bound(layout, call, records, tuned)[: len(arrays)]


def store(layout: Layout, arrays: Sequence[jax.Array], address: jax.Array, records: int, gone: Changed) -> jax.Array:
    """Store rows; the result is there when they are stored."""
    call, gpu = Call(), machine.here()
    cache, _ = _cache(layout, [call.input(array) for array in arrays]), call.output((1,), jnp.int32)
    tuned = tuning.for_sort(len(gone.rows), gpu.cores)
    away = _moves(call, layout, arrays, call.input(address), records, gone, tuned)
    call.launch(0, source.SWAP_LEAVE, _BLOCKS * gpu.cores, _THREADS, [*cache, *away])
    return _bound(layout, call, records, tuned)[0]


def read(
    layout: Layout, table: jax.Array, address: jax.Array, records: int, rows: jax.Array, slots: jax.Array
) -> jax.Array:
    """(N, dim): rows of a table: from the cache at ``slots``, or, where those are past its end, from the records."""
    if not len(rows):
        return jnp.zeros((0, table.shape[1]), table.dtype)
    call, gpu = Call(), machine.here()
    arguments = [call.input(array) for array in (table, address, rows, slots)]
    arguments.append(call.output((len(rows), table.shape[1]), table.dtype))
    arguments += map(number, (len(rows), table.shape[0], records))
    call.launch(0, source.SWAP_READ, _BLOCKS * gpu.cores, _THREADS, arguments)
    return call.bind(machine.load(gpu, [_module(layout)]))[0]


def _moves(
    call: Call,
    layout: Layout,
    arrays: Sequence[jax.Array],
    at: Argument,
    records: int,
    changed: Changed,
    tuned: tuning.SortTuning,
    staged_bytes: int = 0,
) -> list[Argument]:
    """Sort changed rows by their records, and return them as an argument of kernels."""
    count, cores = len(changed.rows), machine.here().cores
    entries, staged = call.scratch(8 * count), min(count, staged_bytes // layout.bytes)
    numbers, slots = call.input(record_numbers(changed, records, arrays[0].shape[0])), call.input(changed.rows)
    if count:
        add_sort(call, 1, tuned, cores, count, records, numbers, slots, entries)
    staging = call.scratch(staged * layout.bytes) if staged else NOTHING
    return together([entries, number(count), at, number(records), staging, number(staged)])


def _bound(layout: Layout, call: Call, records: int, tuned: tuning.SortTuning) -> list[jax.Array]:
    modules = [_module(layout), source.sort_module(sort_passes(records, tuned), tuned)]
    return call.bind(machine.load(machine.here(), modules))


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
