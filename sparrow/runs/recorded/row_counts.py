"""The number of lookups of each row of a table, in bounded memory.

A table of up to `EXACT_ROWS` rows has one count per row (4 bytes; it stops at 2**32 - 1). A larger one has a bit per
row, exact, for whether it was ever looked up, and counts of its hottest rows alone: a Misra-Gries summary of
`CAPACITY` rows, whose counts are low by at most ``error``, itself at most lookups / CAPACITY.

Reference: J. Misra, D. Gries, "Finding repeated elements", 1982; summaries of batches are merged as in P. Agarwal et
al., "Mergeable summaries", 2013: add the counts, then take the (CAPACITY + 1)-th largest away from all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sparrow.embedding import mix64

EXACT_ROWS: Final = 2**18
CAPACITY: Final = 2**14
MOST_COUNTED: Final = 2**32 - 1

Integers = npt.NDArray[np.int64]
Arrays = Mapping[str, npt.NDArray[Any]]


def rows_counted(num_rows: int) -> RowCounts:
    """Return counts for a table of ``num_rows`` rows."""
    return ExactCounts(num_rows) if num_rows <= EXACT_ROWS else HottestCounts(num_rows)


class ExactCounts:
    """One count per row of a table.

    Attributes:
      num_rows: the rows of the table.
      lookups: the lookups so far.
      error: the most that a count may be too low.

    >>> counts = ExactCounts(5)
    >>> counts.add(np.array([1, 4]), np.array([2, 7]))
    >>> counts.touched, [array.tolist() for array in counts.hottest()]
    (2, [[4, 1], [7, 2]])
    """

    def __init__(self, num_rows: int) -> None:
        self.num_rows, self.lookups, self.error = num_rows, 0, 0
        self._counts = np.zeros(num_rows, np.uint32)

    def add(self, rows: Integers, counts: Integers) -> None:
        """Add one batch: distinct rows, ascending, and the lookups of each."""
        self.lookups += int(counts.sum())
        self._counts[rows] = np.minimum(self._counts[rows] + counts, MOST_COUNTED)

    @property
    def touched(self) -> int:
        """The number of rows that were looked up at least once."""
        return int(np.count_nonzero(self._counts))

    def hottest(self) -> tuple[Integers, Integers]:
        """Return rows and their counts, the largest first: all rows that were looked up, or the counted ones."""
        rows = np.flatnonzero(self._counts)
        return _descending(rows, self._counts[rows].astype(np.int64))

    @property
    def nbytes(self) -> int:
        """The bytes of memory, at most."""
        return self._counts.nbytes

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name, for a checkpoint."""
        return {"counts": self._counts.copy(), "totals": np.array([self.lookups], np.int64)}

    def restore(self, state: Arrays) -> bool:
        """Continue from the arrays of `state`; return False, and stay, where they are of a table of another size."""
        if "counts" not in state or state["counts"].shape != self._counts.shape:
            return False
        self._counts = np.array(state["counts"], np.uint32)
        self.lookups = int(state["totals"][0])
        return True


class HottestCounts:
    """A bit per row, and counts of the hottest; otherwise as `ExactCounts`.

    >>> counts = HottestCounts(100, capacity=2)
    >>> counts.add(np.array([1, 4, 70]), np.array([2, 7, 3]))
    >>> counts.touched, counts.error, [array.tolist() for array in counts.hottest()]
    (3, 2, [[4, 70], [5, 1]])
    """

    def __init__(self, num_rows: int, capacity: int = CAPACITY) -> None:
        self.num_rows, self.lookups, self.error = num_rows, 0, 0
        self.capacity = capacity
        self._bits = np.zeros(-(-num_rows // 8), np.uint8)
        self._rows = np.zeros(0, np.int64)  # ascending
        self._counts = np.zeros(0, np.int64)

    def add(self, rows: Integers, counts: Integers) -> None:
        if not len(rows):
            return
        self.lookups += int(counts.sum())
        self._mark(rows)
        merged, where = np.unique(np.concatenate([self._rows, rows]), return_inverse=True)
        total = np.zeros(len(merged), np.int64)
        total[where[: len(self._rows)]] = self._counts
        total[where[len(self._rows) :]] += counts
        if len(merged) > self.capacity:
            cut = int(np.partition(total, -self.capacity - 1)[-self.capacity - 1])
            total -= cut
            self.error += cut
            kept = total > 0
            merged, total = merged[kept], total[kept]
        self._rows, self._counts = merged, total

    def _mark(self, rows: Integers) -> None:
        """Set the bits of ascending rows: the bits of one byte together."""
        byte, bit = rows >> 3, (1 << (rows & 7)).astype(np.uint8)
        first = np.flatnonzero(np.concatenate([[True], byte[1:] != byte[:-1]]))
        self._bits[byte[first]] |= np.bitwise_or.reduceat(bit, first)

    @property
    def touched(self) -> int:
        return int(np.bitwise_count(self._bits).sum(dtype=np.int64))

    def hottest(self) -> tuple[Integers, Integers]:
        return _descending(self._rows, self._counts)

    @property
    def nbytes(self) -> int:
        return self._bits.nbytes + 2 * self.capacity * np.dtype(np.int64).itemsize

    def state(self) -> dict[str, npt.NDArray[Any]]:
        totals = np.array([self.lookups, self.error], np.int64)
        return {"bits": self._bits.copy(), "rows": self._rows, "row_counts": self._counts, "totals": totals}

    def restore(self, state: Arrays) -> bool:
        if "bits" not in state or state["bits"].shape != self._bits.shape:
            return False
        self._bits = np.array(state["bits"], np.uint8)
        self._rows, self._counts = np.array(state["rows"], np.int64), np.array(state["row_counts"], np.int64)
        self.lookups, self.error = (int(value) for value in state["totals"])
        return True


class IdCounts(HottestCounts):
    """Counts of the hottest 64-bit ids; `touched` is an estimate, from bits that hashes of ids have set.

    >>> counts = IdCounts(100)
    >>> counts.add(np.array([-5, 2**40]), np.array([2, 7]))
    >>> counts.touched, [array.tolist() for array in counts.hottest()]
    (2, [[1099511627776, -5], [7, 2]])

    Reference: K. Whang et al., "A linear-time probabilistic counting algorithm for database applications", 1990.
    """

    def __init__(self, num_rows: int) -> None:
        super().__init__(8 * num_rows)
        self.num_rows = num_rows

    def _mark(self, rows: Integers) -> None:
        bits = np.uint64(8 * len(self._bits))
        super()._mark(np.unique((mix64(rows.view(np.uint64)) % bits).astype(np.int64)))

    @property
    def touched(self) -> int:
        bits = 8 * len(self._bits)
        return round(-bits * math.log((bits - min(super().touched, bits - 1)) / bits))


RowCounts: TypeAlias = ExactCounts | HottestCounts


def _descending(rows: Integers, counts: Integers) -> tuple[Integers, Integers]:
    order = np.argsort(-counts, kind="stable")
    return rows[order], counts[order]
