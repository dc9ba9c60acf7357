"""`IdMap`: rows of the ids of one table. Compiled where there is a compiler, else in Python, with equal results."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.embedding.dynamic.record import Dynamic

Ids = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int32]
Arrays = dict[str, npt.NDArray[Any]]

POLICIES: Final = {"none": 0, "lru": 1, "lfu": 2}
NUMBERS: Final = (
    "hand",  # the row that is looked at next when one is needed
    "next",  # rows below it hold ids
    "since",  # ids that were used in this step or later are spared
    "began",  # the step in which this round of the hand began
    "waiting",
    "evicted",
    "refused",
    "admitted",
    "forgotten",
    "expired",
    "head",  # the place of the first waiting id
    "tail",  # the place of the next one
    "quiet",  # no id expires before this step
    "step",  # the last that mapped a batch
)
ARRAYS: Final = {"ids": "u8", "last": "i4", "counts": "u1", "waiting": "u8", "seen": "i4", "places": "i8"}


class TooFewRows(ValueError):
    """The ids of one step need more rows than the table has."""


class Assigned(NamedTuple):
    """The rows of a batch.

    Attributes:
      rows: (N,) the rows of its ids; -1: the id has none.
      new_rows: rows that start fresh with this batch.
      new_ids: the ids that have them.
    """

    rows: Rows
    new_rows: Rows
    new_ids: Ids


class Settings(NamedTuple):
    """The numbers of an id map.

    Attributes:
      capacity: rows that ids may have.
      room: ids that may wait for one.
      admit: times that an id must be seen.
      chance: admitted hashes of id and step are below it; 0: all are.
      policy: one of `POLICIES`.
      expire: steps without use after which an id loses its row; 0: it never does.
      seed: the seed of the hash.
    """

    capacity: int
    room: int = 0
    admit: int = 1
    chance: int = 0
    policy: int = POLICIES["lru"]
    expire: int = 0
    seed: int = 0

    @classmethod
    def of(cls, dynamic: Dynamic, num_rows: int, seed: int = 0) -> Settings:
        """Return the settings of a table of ``num_rows`` rows."""
        counts = dynamic.admit > 1
        return cls(
            capacity=num_rows - dynamic.reserved,
            room=(dynamic.waiting or num_rows) if counts else 0,
            admit=int(dynamic.admit) if counts else 1,
            chance=int(dynamic.admit * 2.0**64) if dynamic.admit < 1 else 0,
            policy=POLICIES[dynamic.evict],
            expire=dynamic.expire_steps or 0,
            seed=seed,
        )


class IdMap(abc.ABC):
    """The row of each id, as of the last batch; `back` goes to the state before a step, `forward` returns.

    Steps come in order, from 0 on. One step may map several batches: rows that it uses are not given to others.
    """

    settings: Settings

    @abc.abstractmethod
    def train(self, ids: Ids, step: int) -> Assigned:
        """Map a batch of step ``step``: count, admit, evict. `TooFewRows` changes nothing."""

    @abc.abstractmethod
    def find(self, ids: Ids, step: int) -> Rows:
        """Return the rows of ids as step ``step`` would find them, -1 where there are none. Change nothing."""

    @abc.abstractmethod
    def back(self, step: int) -> None:
        """Go back to the state before the batches of ``step``."""

    @abc.abstractmethod
    def forward(self) -> None:
        """Return from `back`."""

    @abc.abstractmethod
    def drop(self) -> None:
        """Stay where `back` went: batches from there on were never mapped."""

    @abc.abstractmethod
    def undo_last(self) -> None:
        """Take back the last batch."""

    @abc.abstractmethod
    def forget(self, step: int) -> None:
        """Drop the journals of the steps before ``step``."""

    @property
    @abc.abstractmethod
    def numbers(self) -> dict[str, int]:
        """Return counts and positions, by the names in `NUMBERS`."""

    @abc.abstractmethod
    def state(self) -> Arrays:
        """Return all arrays for a checkpoint: `ARRAYS`, and ``numbers``."""

    @abc.abstractmethod
    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue from the arrays of `state`; this map must be empty and have at least as many rows."""


def id_map(settings: Settings) -> IdMap:
    """Return an empty map: compiled, or in Python where there is no compiler."""
    from sparrow.embedding.dynamic.compiled import CompiledIdMap
    from sparrow.embedding.dynamic.plain import PlainIdMap
    from sparrow.kernels.feed import library

    loaded = library()
    return PlainIdMap(settings) if loaded is None else CompiledIdMap(settings, loaded)


def too_few(capacity: int) -> TooFewRows:
    """Return the error of both maps."""
    return TooFewRows(f"one step needs rows for more than {capacity} distinct ids, and the table has no more")
