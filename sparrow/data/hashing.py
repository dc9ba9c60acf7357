"""Fixed hashes, the same 64 bits on every platform and in every version, and a table that finds them.

Trained tables depend on these functions: a change would send every id to another row. A test checks known values.
`hashed` gives the keys of any column's entries, for hashing, vocabularies, crosses and groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.data.values import Parsed, integers, is_text
from sparrow.embedding import U64, hash_integers, hash_texts, mix64
from sparrow.kernels import feed


def modulo(hashes: U64, size: int) -> npt.NDArray[np.int32]:
    """Return ``hashes % size`` as row numbers. NumPy divides by a constant much faster than it takes remainders."""
    quotient = hashes // np.uint64(size)
    quotient *= np.uint64(size)
    return (hashes - quotient).astype(np.int32)


def shuffled(count: int, *seeds: int) -> npt.NDArray[np.int64]:
    """Return a permutation of ``range(count)`` that depends on ``seeds`` alone: the order of hashed counters.

    >>> shuffled(5, 0, 1).tolist() == shuffled(5, 0, 1).tolist()
    True
    """
    key = np.zeros(1, np.uint64)
    for seed in seeds:
        key = mix64(key ^ np.array([seed], np.int64).view(np.uint64))
    order = feed.shuffled(count, int(key[0]))
    if order is not None:
        return order
    return np.argsort(mix64(np.arange(count, dtype=np.uint64) ^ key))  # no two are equal: any sort gives this order


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


def hashed(entries: Any, as_integer: bool = False) -> Parsed:
    """Return the fixed 64-bit hash of each entry (uint64): integers by value, strings by their UTF-8 bytes.

    An empty string is missing. With ``as_integer``, strings such as "17" hash like the number 17.
    """
    if pa.types.is_dictionary(entries.type):
        return through_dictionary(entries, lambda words: hashed(words, as_integer))
    if is_text(entries.type) and not as_integer:
        keys = hash_texts(entries)
        empty = pc.fill_null(pc.equal(entries, pa.scalar("", entries.type)), True).to_numpy(zero_copy_only=False)
        return Parsed(keys, empty if empty.any() else None)
    parsed = integers(entries)
    return Parsed(hash_integers(parsed.values), parsed.missing, parsed.bad, parsed.why)


def through_dictionary(entries: Any, convert: Any) -> Parsed:
    """Convert the distinct words of a dictionary-coded array only, then spread the result over the entries."""
    words = convert(entries.dictionary)
    indices = entries.indices
    nulls = indices.is_null().to_numpy(zero_copy_only=False) if indices.null_count else None
    at = (indices if nulls is None else indices.fill_null(0)).to_numpy(zero_copy_only=False)
    if len(entries.dictionary) == 0:  # every entry is missing
        return Parsed(np.zeros(len(at), words.values.dtype), np.ones(len(at), np.bool_))
    return Parsed(
        words.values[at],
        nulls if words.missing is None else words.missing[at] if nulls is None else words.missing[at] | nulls,
        None if words.bad is None else words.bad[at] if nulls is None else words.bad[at] & ~nulls,
        lambda i: words.why(int(at[i])),
    )
