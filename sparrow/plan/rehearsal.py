"""A rehearsal: a few steps with small tables, to measure a process's memory besides its tables and batches."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import jax

from sparrow.embedding import Embedder
from sparrow.plan.sizes import size_of
from sparrow.runs import Program
from sparrow.runs.loop.feed import Feed
from sparrow.runs.loop.memory import status_bytes
from sparrow.runs.loop.step import train_step

ROWS: Final = 1000
STEPS: Final = 3


class Rehearsal:
    """A run in small: tables have at most `ROWS` rows, and ids are folded into them; all else is the run's own.

    Attributes:
      starting: bytes of this process once the first values are drawn, without them.
    """

    def __init__(self, program: Program) -> None:
        """Make the state, as a run does before it reads."""
        self._program = _small(program)
        self._state = self._program.init()
        self.starting = _beside(self._state)

    def train(self, feeds: tuple[Feed, ...]) -> int:
        """Make some steps; gives the bytes of this process then, without the state: all is loaded and compiled."""
        step = train_step(self._program)
        folded = tuple(_folded(self._program.embedder, feed) for feed in feeds)
        for _ in range(STEPS):
            self._state, _ = step(self._state, folded)
        return _beside(self._state)


def _beside(state: Any) -> int:
    jax.block_until_ready(state)  # type: ignore[no-untyped-call]
    return max((status_bytes("VmRSS") or 0) - size_of(state), 0)


def _small(program: Program) -> Program:
    specs = []
    for feature in program.embedder.features:
        table = feature.table_spec
        rows = min(table.vocabulary_size, ROWS)
        specs.append(dataclasses.replace(feature, table_spec=dataclasses.replace(table, vocabulary_size=rows)))
    embedder = Embedder(specs)
    return dataclasses.replace(
        program, embedder=embedder, optimizer=dataclasses.replace(program.optimizer, embedder=embedder)
    )


def _folded(embedder: Embedder, feed: Feed) -> Feed:
    lookups: dict[str, Any] = {}
    for stack in embedder.stacks:
        held = feed.packed.lookups[stack.name]
        lookups[stack.name] = dataclasses.replace(held, ids=held.ids % stack.num_rows)
    return feed.with_parts(packed=dataclasses.replace(feed.packed, lookups=lookups))
