"""A hash table in NumPy: from 64-bit keys to positions, many at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sparrow.data.hashing import U64


class HashTable:
    """The position of each key in a list of distinct keys. Open addressing, at most half full.

    The keys are already hashes: their low bits choose the first slot, and each miss moves one slot further.

    >>> table = HashTable(np.array([17, 4, 99], np.uint64))
    >>> table.find(np.array([99, 5, 17], np.uint64)).tolist()
    [2, -1, 0]

    Attributes:
      keys: (slots,) the key in each slot.
      positions: (slots,) its position, or value; -1: the slot is free.
    """

    def __init__(self, keys: U64, values: npt.NDArray[np.int32] | None = None) -> None:
        """Take the keys; ``values``: numbers of at least 0 to find instead of the keys' positions."""
        slots = max(8, 1 << (2 * len(keys) - 1).bit_length())
        self._mask = np.uint64(slots - 1)
        self.keys = np.zeros(slots, np.uint64)
        self.positions = np.full(slots, -1, np.int32)
        pending = np.arange(len(keys), dtype=np.int32)
        slot = (keys & self._mask).astype(np.int64)
        while pending.size:
            free = np.flatnonzero(self.positions[slot] < 0)
            taken, first = np.unique(slot[free], return_index=True)  # one key per free slot
            winners = free[first]
            self.keys[taken] = keys[pending[winners]]
            self.positions[taken] = pending[winners]
            stay = np.ones(len(pending), np.bool_)
            stay[winners] = False
            pending, slot = pending[stay], (slot[stay] + 1) & int(self._mask)
        if values is not None:
            used = self.positions >= 0
            self.positions[used] = values[self.positions[used]]

    def find(self, keys: U64) -> npt.NDArray[np.int32]:
        """Return the position of each key, -1 for an unknown one."""
        slot = (keys & self._mask).astype(np.int64)
        found = self.positions[slot]
        pending = np.flatnonzero((self.keys[slot] != keys) & (found >= 0))
        while pending.size:
            slot[pending] = (slot[pending] + 1) & int(self._mask)
            at = slot[pending]
            found[pending] = self.positions[at]
            pending = pending[(self.keys[at] != keys[pending]) & (found[pending] >= 0)]
        return found
