"""`Recorder`: the report of a run and its data besides the log: curves, traffic, versions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sparrow.data import Collisions, DataError
from sparrow.embedding import Held
from sparrow.reports import CURVES, ENVIRONMENT, METRICS, TRAFFIC, size, write_json, write_report
from sparrow.runs.loop.loop import Loop, Part
from sparrow.runs.loop.progress import Clock
from sparrow.runs.loop.staging import Taken
from sparrow.runs.recorded.environment import Environment
from sparrow.runs.recorded.traffic import Traffic, hot_words, with_ids
from sparrow.runs.step.program import Program


class Recorder(Part):
    """Writer of the report files of one run folder. The first file that cannot be written is logged; the run continues.

    Attributes:
      program: the program that is trained.
      folder: the folder that is written to; None: none is.
      prepare: the work of the pipeline's thread on each batch of training.
    """

    def __init__(self, program: Program, folder: Path | None, hashed: Sequence[Collisions] = ()) -> None:
        """Prepare to record into ``folder``; None: nothing is written. ``hashed``: rows of hashed features."""
        self.program, self.folder, self._hashed = program, folder, hashed
        share = program.config.train.traffic
        self._traffic = Traffic(program.embedder, share) if folder is not None and share else None
        self._held: dict[str, Held] = {}  # counts of the ids of dynamic tables, as last seen
        self.kept = {} if self._traffic is None else {"traffic": self._traffic}
        self.prepare = program.preparer(self._traffic, use="train")
        self._environment: Environment | None = None
        self._examples, self._is_complete = 0, False  # of the current epoch, and whether its start was seen
        self._best: dict[str, Any] | None = None
        self._log: Callable[[str], None] = print
        self._failed = False

    def begin(self, loop: Loop, stack: contextlib.ExitStack) -> None:
        if self.folder is not None:
            stack.enter_context(self._recording(loop, self.folder))

    @contextlib.contextmanager
    def _recording(self, loop: Loop, folder: Path) -> Iterator[None]:
        """Begin a session; leaving the block, also by an error, ends it and writes the report."""
        step, self._log = loop.steps, loop.log.line
        if not step:
            for name in (CURVES, TRAFFIC, ENVIRONMENT):  # of a run that is being replaced
                (folder / name).unlink(missing_ok=True)
        self._best, self._is_complete = _best_of(folder / CURVES, step), step == 0
        self._environment = self._tried(
            lambda: Environment(folder, self.program, step, {one.feature: one._asdict() for one in self._hashed})
        )
        how = "ended by an error"
        try:
            yield
            how = f"stopped early: {loop.why_over}" if loop.why_over else "finished"
        except KeyboardInterrupt:
            how = "interrupted"
            raise
        finally:
            self._finish(folder, how, loop.clock)

    def take(self, loop: Loop, call: Sequence[Taken]) -> None:
        for batch in (batch for taken in call for batch in taken.batches):
            self._examples += batch.examples
            if self._traffic is not None:
                self._traffic.add(batch.counted)

    def after_epoch(self, loop: Loop) -> None:
        if self._environment is not None:
            self._environment.epoch_ended(loop.steps, self._examples if self._is_complete else None)
        self._examples, self._is_complete = 0, True

    def end(self, loop: Loop) -> None:
        if self.program.config.train.steps is None and loop.steps > loop.began_at and not loop.is_over:
            self.after_epoch(loop)
        self._count_ids(loop)

    def evaluated(self, loop: Loop, curves: dict[str, Any], examples: int, *, is_best: bool) -> None:
        """Write the curves of an evaluation of ``examples``, beside those of the best one so far."""
        self._count_ids(loop)
        if self.folder is None:
            return
        path, environment = self.folder / CURVES, self._environment
        last = {"step": loop.steps, "tasks": curves}
        if is_best:
            self._best = last
        held = last if self._best is None else {**last, "best": self._best}
        self._tried(lambda: write_json(path, held))
        if environment is not None:
            self._tried(lambda: environment.write(evaluation_rows=examples))
        self._write_traffic(self.folder)

    def _count_ids(self, loop: Loop) -> None:
        embedder, embedding = self.program.embedder, loop.state.optimizer.embedding
        dynamic = [name for name, table in embedder.tables.items() if table.dynamic is not None]
        self._held = {name: embedder.held(embedding, name) for name in dynamic}

    def _write_traffic(self, folder: Path, *, words: bool = False) -> None:
        """Write the lookups by row, with the words of the hottest ones at the end of the run."""
        if self._traffic is None:
            return
        summary = self._traffic.summary()
        if words:
            hottest = {name: [row for row, _ in table["hottest"]] for name, table in summary["tables"].items()}
            for name, known in (self._tried(lambda: hot_words(self.program.config, hottest)) or {}).items():
                summary["tables"][name]["words"] = [known.get(row) for row in hottest[name]]
        self._tried(lambda: write_json(folder / TRAFFIC, with_ids(summary, self._held)))

    def _finish(self, folder: Path, how: str, clock: Clock) -> None:
        environment = self._environment
        if environment is not None:
            self._tried(lambda: environment.end(how, clock, self._exchange()))
        self._write_traffic(folder, words=True)
        metrics = folder / METRICS
        if metrics.is_file() and metrics.stat().st_size:
            path = self._tried(lambda: write_report([folder]))
            if path is not None:
                self._log(f"report {path}")

    def _exchange(self) -> dict[str, str]:
        """Return the traffic of the last batch on a mesh, in words, by stack."""
        return {
            stack: f"{one.exchange}, {size(one.sent)} sent by a device in a step, space for {one.room:,} vectors of a "
            f"pair, the fullest pair has {one.fullest:.2f} times the mean, {one.padding:.0%} is padding"
            for stack, one in self.prepare.traffic().items()
        }

    def _tried(self, write: Callable[[], Any]) -> Any:
        try:
            return write()
        except (OSError, DataError) as error:
            if not self._failed:
                self._log(f"the report is incomplete: {error}")
            self._failed = True
            return None


def _best_of(path: Path, step: int) -> dict[str, Any] | None:
    """Return the curves of the best evaluation of a run that is resumed at ``step``."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        best = json.loads(path.read_text(encoding="utf-8"))["best"]
        if best["step"] <= step:
            return dict(best)
    return None
