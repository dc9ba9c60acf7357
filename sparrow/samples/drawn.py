"""`Drawn`: random values that go together with the kind of their row, which the labels follow."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

KINDS: Final = 8
"""Kinds of rows. Labels depend on the kind, and so do most values of every column: a model can learn it."""
_FAITHFUL: Final = 0.85
"""The share of values that follow the kind of their row; the others are of any kind."""


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Values for the columns of rows.

    >>> drawn = Drawn(np.arange(6) % KINDS, np.random.default_rng(0))
    >>> bool((drawn.below("item", 50) < 50).all()), len(drawn.elements("seen", 9, np.array([2, 0, 1, 0, 0, 3])))
    (True, 6)

    Attributes:
      kinds: (rows,) the kind of each row.
      rng: the source of all randomness.
    """

    kinds: npt.NDArray[np.int64]
    rng: np.random.Generator

    @classmethod
    def of(cls, rows: int, seed: int) -> Drawn:
        """Return rows of random kinds."""
        rng = np.random.default_rng(seed)
        return cls(rng.integers(0, KINDS, rows), rng)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.kinds)

    def below(self, column: str, count: int) -> npt.NDArray[np.int64]:
        """(rows,) integers from 0 to ``count`` - 1."""
        return self._below(column, count, self.kinds)

    def elements(self, column: str, count: int, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the same for each element of sequences, one sequence after the other."""
        return self._below(column, count, np.repeat(self.kinds, lengths))

    def numbers(self, column: str, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Numbers from 0 to 1; the first axis of ``shape`` is that of the rows."""
        center = self._below(column, 1000, self.kinds) / 1000
        center = center.reshape(-1, *[1] * (len(shape) - 1))
        return np.asarray(0.8 * center + 0.2 * self.rng.uniform(0, 1, shape))

    def positive(self) -> npt.NDArray[np.bool_]:
        """(rows,) what the labels follow: the kind's parity, wrong in one row of twenty."""
        return np.asarray((self.kinds % 2 == 1) ^ (self.rng.uniform(0, 1, self.rows) < 0.05))

    def _below(self, column: str, count: int, kinds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        kinds = np.where(self.rng.uniform(0, 1, len(kinds)) < _FAITHFUL, kinds, self.rng.integers(0, KINDS, len(kinds)))
        of_kind = np.array([zlib.crc32(f"{column}/{kind}".encode()) for kind in range(KINDS)], np.int64)
        # Two values of each kind and column, so that there are more ids than kinds.
        return np.asarray((of_kind[kinds] + self.rng.integers(0, 2, len(kinds))) % max(count, 1))


def as_list(values: Any) -> list[Any]:
    """Return an array as plain values of Python."""
    made: list[Any] = np.asarray(values).tolist()
    return made
