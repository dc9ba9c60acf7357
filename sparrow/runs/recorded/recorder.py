"""`Recorder`: the report of a run and its data besides the log: curves, traffic, versions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sparrow.data import DataError
from sparrow.embedding import Held
from sparrow.reports import CURVES, ENVIRONMENT, METRICS, TRAFFIC, write_json, write_report
from sparrow.runs.loop.clock import Clock
from sparrow.runs.loop.preparer import Prepared
from sparrow.runs.recorded.environment import Environment
from sparrow.runs.recorded.hot_words import hot_words
from sparrow.runs.recorded.table_ids import with_ids
from sparrow.runs.recorded.traffic import Traffic
from sparrow.runs.step.program import Program


class Recorder:
    """Writer of the report files of one run folder. The first file that cannot be written is logged; the run continues.

    Attributes:
      prepare: the work of the pipeline's thread on each batch.
      extras: its content of checkpoints.
      hashed: the words and rows of hashed features, by name.
      clock: the clock of the run; None before it begins.
      stopped: the reason why the run ends early; empty: it does not.
    """

    def __init__(self, program: Program, folder: Path | None) -> None:
        """Prepare to record into ``folder``; None: nothing is written."""
        self._program, self._folder = program, folder
        share = program.config.train.traffic
        self._traffic = Traffic(program.embedder, share) if folder is not None and share else None
        self.held: dict[str, Held] = {}  # counts of the ids of dynamic tables, as the loop last saw them
        self.extras = {} if self._traffic is None else {"traffic": self._traffic}
        self.prepare = program.preparer(self._traffic, use="train")
        self.clock: Clock | None = None
        self.stopped = ""
        self._environment: Environment | None = None
        self._examples, self._is_complete = 0, False  # of the current epoch, and whether its start was seen
        self._best: dict[str, Any] | None = None
        self._log: Callable[[str], None] = print
        self._failed = False
        self.hashed: dict[str, Any] = {}

    @contextlib.contextmanager
    def recording(self, step: int, log: Callable[[str], None]) -> Iterator[None]:
        """Begin a session at ``step``; leaving the block, also by an error, ends it and writes the report."""
        if self._folder is None:
            yield
            return
        self._log, folder = log, self._folder
        if not step:
            for name in (CURVES, TRAFFIC, ENVIRONMENT):  # of a run that is being replaced
                (folder / name).unlink(missing_ok=True)
        self._best, self._is_complete = _best_of(folder / CURVES, step), step == 0
        self._environment = self._tried(lambda: Environment(folder, self._program, step, self.hashed))
        how = "ended by an error"
        try:
            yield
            how = f"stopped early: {self.stopped}" if self.stopped else "finished"
        except KeyboardInterrupt:
            how = "interrupted"
            raise
        finally:
            self._end(folder, how)

    def took(self, batches: Sequence[Prepared]) -> None:
        """Note that a step takes these batches."""
        self._examples += sum(batch.examples for batch in batches)
        if self._traffic is not None:
            for batch in batches:
                self._traffic.add(batch.counted)

    def epoch_ended(self, step: int) -> None:
        """Note that an epoch ended at ``step``."""
        if self._environment is not None:
            self._environment.epoch_ended(step, self._examples if self._is_complete else None)
        self._examples, self._is_complete = 0, True

    def evaluated(self, step: int, curves: dict[str, Any], examples: int, *, is_best: bool) -> None:
        """Write the curves of an evaluation of ``examples``, beside those of the best one so far."""
        if self._folder is None:
            return
        path, environment = self._folder / CURVES, self._environment
        last = {"step": step, "tasks": curves}
        if is_best:
            self._best = last
        held = last if self._best is None else {**last, "best": self._best}
        self._tried(lambda: write_json(path, held))
        if environment is not None:
            self._tried(lambda: environment.write(evaluation_rows=examples))
        self._write_traffic(self._folder)

    def _write_traffic(self, folder: Path, *, words: bool = False) -> None:
        """Write the lookups by row, with the words of the hottest ones at the end of the run."""
        if self._traffic is None:
            return
        summary = self._traffic.summary()
        if words:
            hottest = {name: [row for row, _ in table["hottest"]] for name, table in summary["tables"].items()}
            for name, known in (self._tried(lambda: hot_words(self._program.config, hottest)) or {}).items():
                summary["tables"][name]["words"] = [known.get(row) for row in hottest[name]]
        self._tried(lambda: write_json(folder / TRAFFIC, with_ids(summary, self.held)))

    def _end(self, folder: Path, how: str) -> None:
        environment, clock = self._environment, self.clock
        if environment is not None:
            spent, speed = ({}, 0.0) if clock is None else (clock.times, clock.speed)
            self._tried(lambda: environment.end(how, spent, speed, self.prepare.exchange()))
        self._write_traffic(folder, words=True)
        metrics = folder / METRICS
        if metrics.is_file() and metrics.stat().st_size:
            path = self._tried(lambda: write_report([folder]))
            if path is not None:
                self._log(f"report {path}")

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
