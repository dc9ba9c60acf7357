"""`Recorder`: the report of a run and its data besides the log: curves, traffic, versions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sparrow.data import DataError
from sparrow.reports import CURVES, ENVIRONMENT, METRICS, TRAFFIC, write_json, write_report
from sparrow.runs.loop.preparer import Prepared
from sparrow.runs.loop.program import Program
from sparrow.runs.recorded.environment import Environment
from sparrow.runs.recorded.table_ids import with_ids
from sparrow.runs.recorded.traffic import Traffic


class Recorder:
    """Writer of the report files of one run folder. The first file that cannot be written is logged; the run continues.

    Attributes:
      prepare: the work of the pipeline's thread on each batch.
      extras: its content of checkpoints.
      hashed: the words and rows of hashed features, by name.
    """

    def __init__(self, program: Program, folder: Path | None) -> None:
        """Prepare to record into ``folder``; None: nothing is written."""
        self._program, self._folder = program, folder
        share = program.config.train.traffic
        self._traffic = Traffic(program.embedder, share) if folder is not None and share else None
        self.extras = {} if self._traffic is None else {"traffic": self._traffic}
        self.prepare = program.preparer(self._traffic, train=True)
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
        environment = self._tried(lambda: Environment(folder, self._program.embedder, step, self.hashed))
        how = "ended by an error"
        try:
            yield
            how = "finished"
        except KeyboardInterrupt:
            how = "interrupted"
            raise
        finally:
            self._end(folder, environment, how)

    def took(self, batches: Sequence[Prepared]) -> None:
        """Note that a step takes these batches."""
        if self._traffic is not None:
            for batch in batches:
                self._traffic.restart(batch.restarted)
                self._traffic.add(batch.counted)

    def evaluated(self, step: int, curves: dict[str, Any]) -> None:
        """Write the curves of an evaluation."""
        if self._folder is not None:
            path = self._folder / CURVES
            self._tried(lambda: write_json(path, {"step": step, "tasks": curves}))
            self._write_traffic(self._folder)

    def _write_traffic(self, folder: Path) -> None:
        traffic = self._traffic
        if traffic is not None:
            self._tried(lambda: write_json(folder / TRAFFIC, with_ids(traffic.summary(), self._program.vocabularies)))

    def _end(self, folder: Path, environment: Environment | None, how: str) -> None:
        if environment is not None:
            self._tried(lambda: environment.end(how, self.prepare.exchange()))
        self._write_traffic(folder)
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
