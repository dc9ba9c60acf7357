"""Rows between a cache on the GPU and records in pinned host memory: the functions of `sparrow.kernels.records`."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.kernels import cuda
from sparrow.kernels.ids.types import Changed
from sparrow.kernels.ids.words import words_of
from sparrow.kernels.records import Layout

_THREADS = 256  # as in src/swap.cu
_BLOCKS = 8  # a multiprocessor


class PinnedMemory:
    """Memory of the host, zeros at first, that kernels read and write.

    Attributes:
      array: (bytes,) uint8.
      address: (2,) uint32, where it begins: an operand of `swap`, `read` and `store`.
    """

    def __init__(self, size: int) -> None:
        self._shim = _machine().shim
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
    layout: Layout, arrays: Sequence[jax.Array], address: jax.Array, records: int, fresh: Changed, gone: Changed
) -> list[jax.Array]:
    """Store and read rows in one launch; arrays that are donated are changed in place."""
    from sparrow.kernels.cuda.plan import Call

    call = Call()
    return _moved(call, layout, arrays, [call.in_place(array) for array in arrays], address, records, fresh, gone)


def store(layout: Layout, arrays: Sequence[jax.Array], address: jax.Array, records: int, gone: Changed) -> jax.Array:
    """Store rows; the result is there when they are stored."""
    from sparrow.kernels.cuda.plan import Call

    call = Call()
    held = [call.input(array) for array in arrays]
    call.output((1,), jnp.int32)
    none = gone._replace(ends=jnp.zeros_like(gone.ends))
    return _moved(call, layout, arrays, held, address, records, none, gone)[0]


def read(
    layout: Layout, table: jax.Array, address: jax.Array, records: int, rows: jax.Array, slots: jax.Array
) -> jax.Array:
    """(N, dim): rows of a table: from the cache at ``slots``, or, where those are past its end, from the records."""
    from sparrow.kernels.cuda import programs, source
    from sparrow.kernels.cuda.machine import TARGET
    from sparrow.kernels.cuda.plan import Call, number

    if not len(rows):
        return jnp.zeros((0, table.shape[1]), table.dtype)
    call, machine = Call(), _machine()
    arguments = [call.input(array) for array in (table, address, rows, slots)]
    arguments.append(call.output((len(rows), table.shape[1]), table.dtype))
    arguments += map(number, (len(rows), table.shape[0], records))
    call.launch(0, source.SWAP_READ, _BLOCKS * machine.cores, _THREADS, arguments)
    return call.bind(TARGET, programs.load(machine, [_module(layout)]))[0]


def _moved(
    call: Any,
    layout: Layout,
    arrays: Sequence[jax.Array],
    held: list[Any],
    address: jax.Array,
    records: int,
    fresh: Changed,
    gone: Changed,
) -> list[jax.Array]:
    from sparrow.kernels.cuda import programs, source
    from sparrow.kernels.cuda.machine import TARGET
    from sparrow.kernels.cuda.plan import number, together

    vectors, numbers = _slots(layout)
    lists = [together([call.input(x) for x in (one.rows, one.ids, one.ends)]) for one in (fresh, gone)]
    cache = together([held[0], *_or_null([held[i] for i in vectors]), *_or_null([held[i] for i in numbers])])
    sizes = map(number, (fresh.ends.shape[0], arrays[0].shape[0], records))
    machine = _machine()
    arguments = [*cache, *lists[0], *lists[1], call.input(address), *sizes]
    call.launch(0, source.SWAP, _BLOCKS * machine.cores, _THREADS, arguments)
    results: list[jax.Array] = call.bind(TARGET, programs.load(machine, [_module(layout)]))
    return results


def _slots(layout: Layout) -> tuple[list[int], list[int]]:
    """Return the numbers of the slots with vectors, and of those with one number per row."""
    vectors = [i for i, part in enumerate(layout.parts) if part.numbers and i > 0]
    return vectors, [i for i, part in enumerate(layout.parts) if not part.numbers]


def _module(layout: Layout) -> Any:
    from sparrow.kernels.cuda import source

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


def _or_null(arguments: list[Any]) -> list[Any]:
    from sparrow.kernels.cuda.plan import NOTHING

    return arguments or [NOTHING]


def _machine() -> Any:
    machine = cuda.machine_if_any()
    if machine is None:
        raise RuntimeError(f"backend 'cuda' cannot run: {cuda.unavailable()}")
    return machine
