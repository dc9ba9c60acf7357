"""`CompiledPlanner`: the plan in C++, and rows copied by it; the interpreter's lock is free meanwhile."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.embedding.host.planner import Ids, Moves, Planner
from sparrow.embedding.stacking import Stack

_I64 = ctypes.c_int64


class CompiledPlanner(Planner):
    """Calls ``cache_plan.cc``."""

    def __init__(self, logical: Stack, cached: Stack, library: ctypes.CDLL) -> None:
        super().__init__(logical, cached)
        self._library = library
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
        """One pass; calls for other tables may run at the same time."""
        self._library.sparrow_cache_plan_see(
            self._plan, _at(ids), _I64(len(ids)), _I64(tables.start), _I64(tables.stop)
        )

    def needed(self, table: int) -> int:
        """Return the length of its list."""
        return int(self._library.sparrow_cache_plan_needed(self._plan, _I64(table)))

    def admit(self, table: int) -> Moves:
        """One pass over its rows; calls for other tables may run at the same time."""
        numbers = np.zeros(4, np.int64)
        self._library.sparrow_cache_plan_admit(self._plan, _I64(table), _at(numbers))
        coming, leaving, early, after = numbers.tolist()
        in_rows, in_slots = np.empty(coming, np.int32), np.empty(coming, np.int32)
        out_rows, out_slots = np.empty(leaving, np.int32), np.empty(leaving, np.int32)
        lists = map(_at, (in_rows, in_slots, out_rows, out_slots))
        self._library.sparrow_cache_plan_moves(self._plan, _I64(table), *lists)
        return Moves(in_rows, in_slots, out_rows, out_slots, early, after)

    def slots(self, ids: Ids) -> None:
        """One pass; parts of a batch may be done at the same time."""
        self._library.sparrow_cache_plan_slots(self._plan, _at(ids), _I64(len(ids)))

    def end(self) -> None:
        """Free its lists."""
        self._library.sparrow_cache_plan_end(self._plan)


def gather(library: ctypes.CDLL, array: npt.NDArray[Any], rows: Ids, out: npt.NDArray[Any]) -> None:
    """Copy ``array[rows]`` to ``out``."""
    row_bytes = _I64(array.nbytes // len(array))
    library.sparrow_feed_gather_rows(_at(array), row_bytes, _at(rows), _I64(len(rows)), _at(out))


def scatter(library: ctypes.CDLL, array: npt.NDArray[Any], rows: Ids, values: npt.NDArray[Any]) -> None:
    """Copy ``values`` to ``array[rows]``."""
    row_bytes = _I64(array.nbytes // len(array))
    library.sparrow_feed_scatter_rows(_at(array), row_bytes, _at(rows), _I64(len(rows)), _at(values))


def _at(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.__array_interface__["data"][0])
