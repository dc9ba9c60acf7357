"""`Planner`: the rows of a stack that are on the device. Compiled where there is a compiler, else NumPy, with equal
results.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.embedding.stacking import Stack

Ids = npt.NDArray[np.int32]


class Moves(NamedTuple):
    """The rows of one table that come before a step, and the ones that leave for them.

    Attributes:
      in_rows, in_slots: rows of the logical stack, and the slots of the device's stack that they get.
      out_rows, out_slots: rows that leave, and the slots that they leave. The slots are among ``in_slots``.
      early: rows among these that a later step of the window needs again.
      after: the last step before which one of the coming rows left; -1: none of them ever did.
    """

    in_rows: Ids
    in_slots: Ids
    out_rows: Ids
    out_slots: Ids
    early: int
    after: int


def too_small(table: int) -> ValueError:
    """Return the error of a step that needs more rows of a table than its cache has."""
    return ValueError(f"a step needs more rows of table {table} of its stack than the cache has")


class Planner(abc.ABC):
    """The slots of a stack's tables and the rows in them, as of the last step that was planned.

    Steps enter a window in order (`begin`, then `see` for each batch) and leave it in order (`admit` for each table,
    `slots` for each batch, then `end`).

    Attributes:
      first_rows: (tables + 1,) where the rows of each table begin in the logical stack, and where the last ones end.
      first_slots: (tables + 1,) the same of the device's stack.
    """

    def __init__(self, logical: Stack, cached: Stack) -> None:
        self.first_rows = np.array([*logical.first_rows, logical.num_rows], np.int64)
        self.first_slots = np.array([*cached.first_rows, cached.num_rows], np.int64)

    @abc.abstractmethod
    def begin(self, step: int) -> None:
        """Let a step enter the window."""

    @abc.abstractmethod
    def see(self, ids: Ids, tables: range) -> None:
        """Mark the rows of one batch of the newest step, as far as they belong to ``tables``; others are ignored."""

    @abc.abstractmethod
    def needed(self, table: int) -> int:
        """Return the distinct rows of one table in the newest step."""

    @abc.abstractmethod
    def admit(self, table: int) -> Moves:
        """Give slots to the rows of one table in the oldest step. Raise ValueError where there are too few."""

    def admit_all(self) -> list[Moves]:
        """Call `admit` for every table."""
        return [self.admit(table) for table in range(len(self.first_rows) - 1)]

    @abc.abstractmethod
    def slots(self, ids: Ids) -> None:
        """Replace the rows of one batch of the oldest step by their slots, in place; padding by the number of slots."""

    @abc.abstractmethod
    def end(self) -> None:
        """Let the oldest step leave the window."""


def planner(logical: Stack, cached: Stack, threads: int = 1) -> Planner:
    """Return a plan without rows on the device, which ``threads`` threads work on."""
    from sparrow.embedding.host.compiled import CompiledPlanner
    from sparrow.embedding.host.plain import PlainPlanner
    from sparrow.kernels.feed import library

    loaded = library()
    return PlainPlanner(logical, cached) if loaded is None else CompiledPlanner(logical, cached, loaded, threads)


def parts(count: int, workers: int) -> Sequence[range]:
    """Return ranges of about equal size that cover ``range(count)``, at most as many as there are workers.

    >>> parts(5, 2)
    [range(0, 3), range(3, 5)]
    """
    size = -(-count // max(min(workers, count), 1))
    return [range(begin, min(begin + size, count)) for begin in range(0, count, size or 1)]
