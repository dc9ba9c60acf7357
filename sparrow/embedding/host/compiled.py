"""`CompiledPlanner`: the plan in C++, and rows copied by it; the interpreter's lock is free meanwhile."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.embedding.host.planner import Ids, Moves, Planner, too_small
from sparrow.embedding.stacking import Stack

_I64 = ctypes.c_int64


class CompiledPlanner(Planner):
    """Calls ``cache_plan.cc``."""

    def __init__(self, logical: Stack, cached: Stack, library: ctypes.CDLL, threads: int = 1) -> None:
        super().__init__(logical, cached)
        self._library, self._threads = library, _I64(threads)
        at = library.sparrow_cache_plan_new(_I64(len(self.first_rows) - 1), _at(self.first_rows), _at(self.first_slots))
        if not at:
            raise MemoryError(f"there is no memory to plan the cache of {logical.num_rows} rows")
        self._plan = ctypes.c_void_p(at)

    def __del__(self) -> None:
        if hasattr(self, "_plan"):
            self._library.sparrow_cache_plan_free(self._plan)

    def begin(self, step: int) -> None:
        """Open lists for its rows."""
        self._library.sparrow_cache_plan_begin(self._plan, _I64(step))

    def see(self, ids: Ids, tables: range) -> None:
        """One pass for each thread, which has its own tables."""
        self._library.sparrow_cache_plan_see(
            self._plan, _at(ids), _I64(len(ids)), _I64(tables.start), _I64(tables.stop), self._threads
        )

    def needed(self, table: int) -> int:
        """Return the length of its list."""
        return int(self._library.sparrow_cache_plan_needed(self._plan, _I64(table)))

    def admit(self, table: int) -> Moves:
        """One pass over its rows."""
        return self._admitted(range(table, table + 1))[0]

    def admit_all(self) -> list[Moves]:
        """Several tables at the same time."""
        return self._admitted(range(len(self.first_rows) - 1))

    def _admitted(self, tables: range) -> list[Moves]:
        numbers = np.zeros((len(tables), 4), np.int64)
        self._library.sparrow_cache_plan_admit(
            self._plan, _I64(tables.start), _I64(tables.stop), _at(numbers), self._threads
        )
        return [self._moves(table, *own) for table, own in zip(tables, numbers.tolist(), strict=True)]

    def _moves(self, table: int, coming: int, leaving: int, early: int, after: int) -> Moves:
        if coming < 0:
            raise too_small(table)
        in_rows, in_slots = np.empty(coming, np.int32), np.empty(coming, np.int32)
        out_rows, out_slots = np.empty(leaving, np.int32), np.empty(leaving, np.int32)
        lists = map(_at, (in_rows, in_slots, out_rows, out_slots))
        self._library.sparrow_cache_plan_moves(self._plan, _I64(table), *lists)
        return Moves(in_rows, in_slots, out_rows, out_slots, early, after)

    def slots(self, ids: Ids) -> None:
        """One pass, in parts."""
        self._library.sparrow_cache_plan_slots(self._plan, _at(ids), _I64(len(ids)), self._threads)

    def end(self) -> None:
        """Free its lists."""
        self._library.sparrow_cache_plan_end(self._plan)


Pairs = Sequence[tuple[npt.NDArray[Any], npt.NDArray[Any]]]
"""Arrays in host memory, each with the array of the same kind of rows that goes with it."""


def gather(library: ctypes.CDLL, pairs: Pairs, rows: Ids, threads: int) -> None:
    """Copy the ``rows`` of each first array to the beginning of the second one."""
    _copy(library.sparrow_feed_gather_rows, pairs, rows, threads)


def scatter(library: ctypes.CDLL, pairs: Pairs, rows: Ids, threads: int) -> None:
    """Copy the beginning of each second array to the ``rows`` of the first one."""
    _copy(library.sparrow_feed_scatter_rows, pairs, rows, threads)


def _copy(function: Any, pairs: Pairs, rows: Ids, threads: int) -> None:
    pointers = ctypes.c_void_p * len(pairs)
    held = pointers(*(array.__array_interface__["data"][0] for array, _ in pairs))
    others = pointers(*(array.__array_interface__["data"][0] for _, array in pairs))
    sizes = (_I64 * len(pairs))(*(array.nbytes // len(array) for array, _ in pairs))
    rows = np.ascontiguousarray(rows, np.int32)
    function(_I64(len(pairs)), held, sizes, _at(rows), _I64(len(rows)), others, _I64(threads))


def _at(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.__array_interface__["data"][0])
