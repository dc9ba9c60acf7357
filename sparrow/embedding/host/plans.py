"""`Plans`: the plans of all caches, one window of steps for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sparrow.embedding.host.planner import Ids, Moves, Planner, planner
from sparrow.embedding.host.workers import cores
from sparrow.embedding.stacking import Stack

IdsOf = Mapping[str, Ids]
"""The entries of one batch by stack: rows of the logical stack, or padding."""


class HostStack(NamedTuple):
    """One stack in host memory: with all rows of its tables, and with the rows of their caches."""

    logical: Stack
    cached: Stack


class Seen(NamedTuple):
    """The entries of a step, and the distinct rows among them."""

    lookups: int
    unique: int


class Plans:
    """Planners by stack; several threads work on tables and on parts of batches."""

    def __init__(self, stacks: Mapping[str, HostStack], threads: int | None = None) -> None:
        self._stacks, threads = stacks, cores() if threads is None else threads
        self._planners: dict[str, Planner] = {name: planner(*stack, threads) for name, stack in stacks.items()}

    def see(self, step: int, batches: Sequence[IdsOf]) -> Seen:
        """Let the batches of a step enter the window. Raise ValueError where they need more rows than fit."""
        lookups = unique = 0
        for name, (logical, cached) in self._stacks.items():
            plan = self._planners[name]
            plan.begin(step)
            for batch in batches:
                lookups += len(batch[name])
                plan.see(batch[name], range(len(logical.tables)))
            for index, (table, small) in enumerate(zip(logical.tables, cached.tables, strict=True)):
                needed = plan.needed(index)
                unique += needed
                if needed > small.vocabulary_size:
                    raise ValueError(
                        f"table '{table.name}': one step needs {needed} rows on the device, and its cache has "
                        f"{small.vocabulary_size}; make memory.cache larger, or the batch smaller"
                    )
        return Seen(lookups, unique)

    def admit(self, batches: Sequence[IdsOf]) -> dict[str, Moves]:
        """Take the oldest step of the window, whose batches these are: slots instead of rows, in place."""
        moves = {name: self._admitted(name) for name in self._stacks}
        for name, plan in self._planners.items():
            for batch in batches:
                plan.slots(batch[name])
            plan.end()
        return moves

    def first_rows(self, stack: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return where the rows of each table begin in the logical stack, and where the last ones end."""
        return self._planners[stack].first_rows

    def slots_of(self, stack: str, rows: Ids) -> Ids:
        """Return the slots of rows of the last step that was admitted."""
        slots = np.array(rows, np.int32)
        self._planners[stack].slots(slots)
        return slots

    def _admitted(self, name: str) -> Moves:
        made = self._planners[name].admit_all()
        if len(made) == 1:
            return made[0]
        in_rows, in_slots, out_rows, out_slots = (
            np.concatenate([getattr(one, field) for one in made]) for field in Moves._fields[:4]
        )
        early, after = sum(one.early for one in made), max(one.after for one in made)
        return Moves(in_rows, in_slots, out_rows, out_slots, early, after)
