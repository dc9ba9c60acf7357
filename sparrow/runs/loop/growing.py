"""`Growing`: the dynamic tables of a run. New ids get rows before a step; a step that failed gives them back."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from sparrow.embedding import Embedder, NewRows, PackedBatch, Vocabularies
from sparrow.runs.loop.preparer import Prepared
from sparrow.runs.loop.program import Program, TrainState

IDS: Final = "ids"
"""The name of the ids among the extras of a checkpoint."""


class Overwritten(NamedTuple):
    """Rows that start anew with a batch, and the values that they had before."""

    batch: PackedBatch
    held: dict[str, Any]


class Growing:
    """Starts rows on the device, and keeps the ids as of the steps that were made; an extra of checkpoints.

    A run without dynamic tables has nothing to do here.
    """

    def __init__(self, program: Program) -> None:
        self._embedder: Embedder = program.embedder
        self._vocabularies: Vocabularies | None = program.vocabularies
        self._keeps = program.config.train.non_finite == "stop"

    def admit(
        self, state: TrainState, batches: Sequence[Prepared], go: jax.Array | None
    ) -> tuple[TrainState, tuple[Overwritten, ...]]:
        """Return the state with the rows of new ids at their start, and the overwritten values; donates it."""
        kept = []
        for new in (prepared.new for prepared in batches):
            if not new:
                continue
            batch = _only(new)
            embedding = state.optimizer.embedding
            if self._keeps:
                kept.append(Overwritten(batch, self._embedder.overwritten(embedding, batch)))
            state = _with(state, self._embedder.admit(embedding, batch, when=go)[0])
        return state, tuple(kept)

    def give_back(self, state: TrainState, overwritten: Sequence[Overwritten]) -> TrainState:
        """Return the state before `admit`. The state is donated."""
        for batch, held in reversed(overwritten):
            state = _with(state, self._embedder.give_back(state.optimizer.embedding, batch, held))
        return state

    def at(self, step: int) -> contextlib.AbstractContextManager[None]:
        """Go back to the ids as of ``step``, while somebody saves or evaluates: batches are made ahead of the steps."""
        return contextlib.nullcontext() if self._vocabularies is None else self._vocabularies.at(step)

    def return_to(self, step: int) -> None:
        """Forget the batches after ``step``, which nobody will take."""
        if self._vocabularies is not None:
            self._vocabularies.return_to(step)

    def forget(self, step: int) -> None:
        """Nobody will go back behind ``step``."""
        if self._vocabularies is not None:
            self._vocabularies.forget(step)

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """Ids and rows, within `at`."""
        return {} if self._vocabularies is None else self._vocabularies.state()

    def restore(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Nothing: ids come back with their tables, see `sparrow.runs.saved.restoring`."""


def _only(new: dict[str, NewRows]) -> PackedBatch:
    return PackedBatch({}, (), new)


def _with(state: TrainState, embedding: Any) -> TrainState:
    return dataclasses.replace(state, optimizer=dataclasses.replace(state.optimizer, embedding=embedding))
