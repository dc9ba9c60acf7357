"""`HostRows`: the rows and slots of one logical stack in host memory, or in a scratch file."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.embedding.host import compiled
from sparrow.embedding.host.planner import Ids, parts
from sparrow.embedding.host.transfer import SMALL, on_host, to_host
from sparrow.embedding.host.workers import Workers
from sparrow.embedding.sharding.first_values import AT_ONCE, first_values
from sparrow.embedding.stacking import Stack
from sparrow.kernels.feed import library

Array = npt.NDArray[Any]
TABLE: Final = ""
"""The name of the table among its slots."""


class HostRows:
    """Arrays by name: the table under "", and its slots."""

    def __init__(self, stack: Stack, threads: int) -> None:
        """Reserve the memory, or raise ValueError where there is no room. ``threads`` copy rows."""
        self.stack, self._threads = stack, threads
        shapes: dict[str, tuple[tuple[int, ...], Any]] = {TABLE: ((stack.num_rows, stack.dim), stack.step.dtype)}
        if not stack.frozen:
            shapes |= {name: (stack.slot_shape(layout), jnp.float32) for name, layout in stack.step.slots}
        memory = stack.tables[0].memory
        path = None if memory is None else memory.path
        need = sum(math.prod(shape) * jnp.dtype(dtype).itemsize for shape, dtype in shapes.values())
        _refuse_if_large(stack, need, path)
        self.arrays: dict[str, Array] = {
            name: _allocated(stack, shape, jnp.dtype(dtype), path) for name, (shape, dtype) in shapes.items()
        }

    @property
    def nbytes(self) -> int:
        """Bytes of rows and slots."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def row_bytes(self) -> int:
        """Bytes of one row with its slots."""
        return self.nbytes // self.stack.num_rows

    def init(self, key: jax.Array) -> None:
        """Set the first values, as `TableSpec.initial_values` draws them, some at a time; slots to their start."""
        workers = Workers(self._threads)

        def fill(to: Array, values: Any) -> None:
            spans = parts(len(to), workers.threads if to.nbytes > SMALL else 1)
            given = np.broadcast_to(values, to.shape)
            workers.each(lambda span: np.copyto(to[span.start : span.stop], given[span.start : span.stop]), spans)

        table, read = self.arrays[TABLE], first_values(self.stack, key, lambda rows: on_host(to_host(rows)))
        for spec, start in zip(self.stack.tables, self.stack.first_rows, strict=True):
            size = max(AT_ONCE // self.stack.dim, 1)
            for first in range(start, start + spec.vocabulary_size, size):
                last = min(first + size, start + spec.vocabulary_size)
                fill(table[first:last], read(first, last))
            for name, array in self.arrays.items():
                if name != TABLE:
                    fill(array[self.stack.rows_of(spec.name)], spec.optimizer.slot_init(name))
        workers.close()

    def gather(self, rows: Ids, out: Mapping[str, Array]) -> None:
        """Copy the values of rows to the beginning of arrays, by name."""
        loaded = library()
        if loaded is not None:
            pairs = [(self.arrays[name], array) for name, array in out.items()]
            compiled.gather(loaded, pairs, rows, self._threads)
            return
        for name, array in out.items():
            np.take(self.arrays[name], rows, axis=0, out=array[: len(rows)])

    def scatter(self, rows: Ids, values: Mapping[str, Array]) -> None:
        """Overwrite rows, each of them once, with the beginning of arrays, by name."""
        loaded = library()
        if loaded is not None:
            pairs = [(self.arrays[name], np.ascontiguousarray(array)) for name, array in values.items()]
            compiled.scatter(loaded, pairs, rows, self._threads)
            return
        for name, array in values.items():
            self.arrays[name][rows] = array[: len(rows)]


def free_memory() -> int | None:
    """Return the bytes of host memory that are free; None: not known."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def _refuse_if_large(stack: Stack, need: int, path: str | None) -> None:
    names = ", ".join(table.name for table in stack.tables[:3]) + ", ..." * (len(stack.tables) > 3)
    if path is None:
        free, where, hint = free_memory(), "host memory", "memory.path keeps them on disk"
    else:
        try:
            Path(path).mkdir(parents=True, exist_ok=True)
            free, where, hint = shutil.disk_usage(path).free, path, "give memory.path a larger disk"
        except OSError as error:
            raise ValueError(f"the tables {names} cannot be kept in {path}: {error.strerror or error}") from None
    if free is not None and need > free:
        raise ValueError(
            f"the tables {names} need {need / 1e9:.3g} GB of {where} with their slots, and {free / 1e9:.3g} GB are "
            f"free; {hint}"
        )


def _allocated(stack: Stack, shape: tuple[int, ...], dtype: np.dtype[Any], path: str | None) -> Array:
    size = max(math.prod(shape) * dtype.itemsize, 1)
    if path is None:
        try:
            return _in_large_pages(size)[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
        except (MemoryError, OSError):
            raise ValueError(f"there is no host memory for table '{stack.tables[0].name}'") from None
    try:
        descriptor, file = tempfile.mkstemp(prefix="sparrow-table-", suffix=".rows", dir=path)
        try:
            os.unlink(file)  # the space is free again when the process ends, however it does
            os.posix_fallocate(descriptor, 0, size)
            with os.fdopen(os.dup(descriptor), "r+b") as opened:
                return (
                    np.memmap(opened, np.uint8, "r+", shape=(size,))[: math.prod(shape) * dtype.itemsize]
                    .view(dtype)
                    .reshape(shape)
                )
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ValueError(
            f"table '{stack.tables[0].name}' cannot be kept in {path}: {error.strerror or error}"
        ) from None


def _in_large_pages(size: int) -> Array:
    """Return zeroed bytes, in large pages where the system has them: random rows need fewer of its page tables."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(size, np.uint8)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)
