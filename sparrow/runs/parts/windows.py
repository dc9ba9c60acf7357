"""`Windows`: batches judged before they are trained on, by windows of event time or of steps; and what drifts.

The predictions are those of the step's own forward pass, which precede its update. A batch belongs to the window of its
newest example; a window ends with the first batch of a later one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np
import numpy.typing as npt

from sparrow.embedding import Embedder
from sparrow.feed import Prepared
from sparrow.runs.loop.loop import Loop, Part
from sparrow.runs.loop.staging import Taken, is_due
from sparrow.runs.recorded.traffic import Counted
from sparrow.runs.step.program import Program
from sparrow.tasks import WINDOW

UNITS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
BITS: Final = 2**24
"""The most ids of a table that are counted apart; the ids of larger tables share counters."""
MIXED: Final = np.uint64(0x9E3779B97F4A7C15)
"""Ids of dynamic tables times this number have places in their upper bits."""


class Windows(Part):
    """The log of each window, and the time of the newest example."""

    def __init__(self, program: Program, column: str | None, unit: str) -> None:
        """Take the column of the time, and its unit."""
        section = program.config.evaluate.windows
        self._seconds = None if section is None else section.seconds
        self.every_steps = None if section is None else section.steps
        self._column, self._unit, self._program = column, UNITS[unit], program
        self._drift = Drift(program.embedder)
        self.kept = {} if section is None else {"windows": self._drift}

    def take(self, loop: Loop, call: Sequence[Taken]) -> None:
        """Note the time of the next batches; log the window before them where they begin another one."""
        batches = [batch for taken in call for batch in taken.batches]
        times = self._times(batches)
        if len(times):
            newest = float(times.max()) / self._unit
            loop.note(event_time=max(newest, loop.progress.event_time or newest))
            if self._seconds is not None:
                number = int(newest // self._seconds)
                if self._drift.window is not None and number > self._drift.window and self._drift.examples:
                    self._report(loop)
                self._drift.window = max(number, self._drift.window or number)
                begin = (self._drift.window - 1) * self._seconds * self._unit
                self._drift.late += int((times < begin).sum())
        for batch in batches:
            self._drift.add(batch.counted, batch.examples)

    def after_step(self, loop: Loop) -> None:
        if is_due(loop.steps, self.every_steps):
            self._report(loop)

    def end(self, loop: Loop) -> None:
        """Log the last window, even if it is incomplete."""
        if self._drift.examples and self._program.config.evaluate.windows is not None:
            self._report(loop)

    def _times(self, batches: Sequence[Prepared]) -> npt.NDArray[np.int64]:
        found = [batch.keys[self._column] for batch in batches] if self._column is not None else []
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def _report(self, loop: Loop) -> None:
        loop.settle()
        scores = self._program.train_scores
        own = {name: state for name, state in loop.state.metrics.items() if name.startswith(WINDOW)}
        states = jax.device_get(own)
        values = scores.compute(states)
        reasons = {name.removeprefix(WINDOW): why for name, why in scores.reasons(states, values).items()}
        fresh = self._program.embedder.on_its_devices({name: x for name, x in scores.init().items() if name in own})
        loop.state = dataclasses.replace(loop.state, metrics={**loop.state.metrics, **fresh})
        time = {} if self._seconds is None else {"event_time": (self._drift.window or 0) * self._seconds}
        named = {name.removeprefix(WINDOW): value for name, value in values.items()}
        skipped = {"malformed_rows": float(loop.batches.skipped)} if loop.batches.skipped else {}
        loop.log.report("window", loop.steps, {**time, **named, **self._drift.values(), **skipped}, reasons=reasons)
        self._drift.clear()


class Drift:
    """Examples, ids and new ids of a window; `state` and `restore` are for checkpoints.

    Ids are those of the batches that `Traffic` counts.

    Attributes:
      window: the number of the window; None: none has begun.
      examples: the examples of the window.
      late: examples among them that are older than the window before.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._dynamic = {name: table.dynamic is not None for name, table in embedder.tables.items()}
        self._seen = {
            name: np.zeros(min(BITS, table.vocabulary_size if table.dynamic is None else BITS), np.bool_)
            for name, table in embedder.tables.items()
        }
        self.window: int | None = None
        self.clear()

    def clear(self) -> None:
        self.examples = self.late = self._counted = 0
        self._sums = {name: np.zeros(3, np.int64) for name in self._seen}  # lookups, distinct ids of batches, new ones

    def add(self, counted: Counted | None, examples: int) -> None:
        """Add a batch, and its ids where they were counted."""
        self.examples += examples
        if counted is None:
            return
        self._counted += examples
        for name, (rows, counts) in counted.items():
            seen = self._seen[name]
            places = rows.view(np.uint64) * MIXED >> np.uint64(40) if self._dynamic[name] else rows % len(seen)
            self._sums[name] += (int(counts.sum()), len(rows), int((~seen[places]).sum()))
            seen[places] = True

    def values(self) -> dict[str, float]:
        made = {"examples": float(self.examples), "late": float(self.late)}
        for name, sums in self._sums.items() if self._counted else ():
            lookups, ids, new = sums.tolist()
            made[f"coverage/{name}"] = lookups / self._counted
            made[f"unseen/{name}"] = new / max(ids, 1)
        return made

    def state(self) -> dict[str, npt.NDArray[Any]]:
        window = -1 if self.window is None else self.window
        arrays: dict[str, npt.NDArray[Any]] = {
            "numbers": np.array([window, self.examples, self.late, self._counted], np.int64)
        }
        for name, seen in self._seen.items():
            arrays |= {f"seen/{name}": np.packbits(seen), f"sums/{name}": self._sums[name].copy()}
        return arrays

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue from the arrays of `state`; tables of another size begin anew."""
        if "numbers" not in arrays:
            return
        window, self.examples, self.late, self._counted = (int(number) for number in arrays["numbers"])
        self.window = None if window < 0 else window
        for name, seen in self._seen.items():
            held = arrays.get(f"seen/{name}")
            if held is not None and len(held) == -(-len(seen) // 8):
                self._seen[name] = np.unpackbits(held, count=len(seen)).astype(np.bool_)
                self._sums[name] = np.array(arrays[f"sums/{name}"], np.int64)
