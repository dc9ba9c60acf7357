"""`LearnedSizes`: the sizes that batches have grown to, kept in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparrow.embedding import Embedder, Learned
from sparrow.feed import Preparer
from sparrow.runs.loop.loop import Loop, Part
from sparrow.runs.loop.staging import Taken

GROWTHS, STACK = "growths", "stack/"


class LearnedSizes(Part):
    """The sizes of a run's batches, so that a resumed run compiles the same programs as the first one.

    Batches are made ahead: a checkpoint holds the sizes as of the last batch that a step took, so that every batch has
    the same size as in a run that was never stopped.
    """

    def __init__(self, preparers: Mapping[str, Preparer], batch_sizes: Mapping[str, int], embedder: Embedder) -> None:
        """Take the preparers and the number of examples in their batches, by use: ``train`` and ``evaluate``.

        On a mesh, sizes are those of the exchange, which they also choose: a resumed run exchanges as the first one.
        """
        self._preparers, self._batch_sizes, self._embedder = preparers, batch_sizes, embedder
        self._devices = 1 if embedder.shards is None else embedder.shards.count
        self._taken: Learned | None = None
        self.kept = {"sizes": self}

    def take(self, loop: Loop, call: Sequence[Taken]) -> None:
        self._taken = call[-1].batches[-1].learned

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        for use, preparer in self._preparers.items():
            learned = self._taken if use == "train" and self._taken is not None else preparer.sizes.learned
            numbers = [learned.growths, self._batch_sizes[use], self._devices]
            arrays[f"{use}/{GROWTHS}"] = np.array(numbers, np.int64)
            for stack, held in learned.held.items():
                arrays[f"{use}/{STACK}{stack}"] = np.array([learned.seen[stack], held], np.int64)
        return arrays

    def restore(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Continue from the arrays of `state`. With another number of examples or devices, sizes are learned again."""
        for use, preparer in self._preparers.items():
            if f"{use}/{GROWTHS}" not in arrays:
                continue
            growths, batch_size, *devices = map(int, arrays[f"{use}/{GROWTHS}"])
            if batch_size != self._batch_sizes[use] or (devices or [1]) != [self._devices]:
                continue
            prefix = f"{use}/{STACK}"
            stacks = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
            seen = {stack: int(pair[0]) for stack, pair in stacks.items()}
            held = {stack: int(pair[1]) for stack, pair in stacks.items()}
            preparer.sizes.learned = Learned(growths, seen, held)
            if self._embedder.shards is not None:
                self._embedder.sharded.adopt(held)
