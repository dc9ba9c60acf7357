"""`CompiledIdMap`: the id map in C++."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.embedding.dynamic.id_map import ARRAYS, NUMBERS, Arrays, Assigned, IdMap, Ids, Rows, Settings, too_few

_I64, _U64 = ctypes.c_int64, ctypes.c_uint64


class CompiledIdMap(IdMap):
    """Calls ``id_map.cc``; the interpreter's lock is free meanwhile."""

    def __init__(self, settings: Settings, library: ctypes.CDLL) -> None:
        self.settings, self._library = settings, library
        kinds = (_I64, _I64, _I64, _U64, _I64, _I64, _U64)
        at = library.sparrow_id_map_new(*(kind(value) for kind, value in zip(kinds, settings, strict=True)))
        if not at:
            raise MemoryError(f"there is no memory for the ids of {settings.capacity} rows")
        self._map = ctypes.c_void_p(at)

    def __del__(self) -> None:
        if hasattr(self, "_map"):
            self._library.sparrow_id_map_free(self._map)

    def train(self, ids: Ids, step: int) -> Assigned:
        """Two passes over the ids, a third where they are counted."""
        ids = np.ascontiguousarray(ids, np.uint64)
        rows, new_rows, new_ids = np.empty(len(ids), np.int32), np.empty(len(ids), np.int32), np.empty_like(ids)
        made = self._library.sparrow_id_map_train(
            self._map, _at(ids), _I64(len(ids)), _I64(step), _at(rows), _at(new_rows), _at(new_ids)
        )
        if made < 0:
            raise too_few(self.settings.capacity)
        return Assigned(rows, new_rows[:made].copy(), new_ids[:made].copy())

    def find(self, ids: Ids, step: int) -> Rows:
        """One pass."""
        ids = np.ascontiguousarray(ids, np.uint64)
        rows = np.empty(len(ids), np.int32)
        self._library.sparrow_id_map_find(self._map, _at(ids), _I64(len(ids)), _I64(step), _at(rows))
        return rows

    def back(self, step: int) -> None:
        """Swap the values of the journals, the newest first."""
        self._library.sparrow_id_map_back(self._map, _I64(step))

    def forward(self) -> None:
        """Swap them again, the oldest first."""
        self._library.sparrow_id_map_forward(self._map)

    def drop(self) -> None:
        """Drop the journals that `back` went through."""
        self._library.sparrow_id_map_drop(self._map)

    def undo_last(self) -> None:
        """Undo its journal, and drop it."""
        self._library.sparrow_id_map_undo_last(self._map)

    def forget(self, step: int) -> None:
        """Drop the oldest journals."""
        self._library.sparrow_id_map_forget(self._map, _I64(step))

    @property
    def numbers(self) -> dict[str, int]:
        """Counts and positions."""
        out = np.zeros(len(NUMBERS), np.int64)
        self._library.sparrow_id_map_numbers(self._map, _at(out))
        return dict(zip(NUMBERS, out.tolist(), strict=True))

    def state(self) -> Arrays:
        """Rows in their order, waiting ids in theirs."""
        numbers = self.numbers
        sizes = [numbers["next"]] * 3 + [numbers["waiting"]] * 3
        arrays = {name: np.zeros(size, kind) for (name, kind), size in zip(ARRAYS.items(), sizes, strict=True)}
        self._library.sparrow_id_map_dump(self._map, *map(_at, arrays.values()))
        return {**arrays, "numbers": np.array(list(numbers.values()), np.int64)}

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Enter them into the empty hash table."""
        arrays = [np.ascontiguousarray(state[name], kind) for name, kind in ARRAYS.items()]
        numbers = np.ascontiguousarray(state["numbers"], np.int64)
        self._library.sparrow_id_map_load(self._map, *map(_at, arrays), _at(numbers))


def _at(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    pointer = ctypes.c_void_p(array.__array_interface__["data"][0])
    pointer.array = array  # type: ignore[attr-defined]  # stays alive as long as the pointer: it may be a temporary
    return pointer
