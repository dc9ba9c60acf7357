"""`TimedExports`: exports while a model trains: a complete one, then deltas, for a server that follows the folder."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sparrow.config import Data, Export
from sparrow.embedding import EXPORTS, ChangedRows, cleared
from sparrow.exports.contents import Parameters, TableDtype, live_ids, smaller
from sparrow.exports.exporting import Programs, export, traced
from sparrow.files import AnyPath, Remote, Streamed, give_back, send_folder
from sparrow.runs import EventSchedule, Loop, Part
from sparrow.runs.evaluating.predict_files import used_in_evaluation
from sparrow.serving.deltas import FOLDER, Delta, Version, folder_of


class TimedExports(Part):
    """Writes the first export of a session, and one after each ``full_after`` deltas, completely.

    A delta is taken from the device between two steps, and written beside the next ones. Where the one before is not
    written yet, one that is due by time comes later, and holds the changes of both. One that cannot be written is
    followed by a complete export.
    """

    def __init__(self, section: Export, folder: AnyPath, data: Data | None) -> None:
        self._section, self._folder = section, folder
        self.every_steps = section.every_steps
        self._last, self._exported_at = 0.0, -1
        self._by_event = EventSchedule(section.every_event_minutes, data)
        self._writing: concurrent.futures.Future[Version] | None = None
        self._version: Version | None = None
        self._programs: Programs | None = None
        self._calibration: Mapping[str, Any] = {}
        self._ids: dict[str, Any] = {}
        self._names: set[str] = set()

    def begin(self, loop: Loop, stack: contextlib.ExitStack) -> None:
        self._by_event.is_due(loop.progress)
        loop.program.embedder.taken(loop.state.optimizer.embedding, EXPORTS)  # compiles
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="sparrow-exports")
        stack.callback(self._pool.shutdown)
        self._local = self._folder if isinstance(self._folder, Path) else None
        if self._local is None:
            self._local = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sparrow-"))) / "export"

    def after_step(self, loop: Loop) -> None:
        section, now = self._section, time.monotonic()
        by_time = section.every_seconds is not None and now - self._last >= section.every_seconds
        by_event = self._by_event.is_due(loop.progress)
        by_steps = section.every_steps is not None and loop.steps % section.every_steps == 0
        is_idle = self._writing is None or self._writing.done()
        if by_steps or by_event or (by_time and is_idle):
            self._export(loop)

    def idle(self, loop: Loop) -> None:
        """Export by time, where steps were made since."""
        if self._exported_at != loop.steps and loop.steps > loop.began_at:
            self.after_step(loop)

    def end(self, loop: Loop) -> None:
        if self._exported_at != loop.steps:
            self._export(loop)
        self._settle(loop)

    def _export(self, loop: Loop) -> None:
        self._last, self._exported_at = time.monotonic(), loop.steps
        loop.settle()
        self._settle(loop)
        with loop.clock.paused("exports"):
            if self._version is None or self._version.delta >= self._section.full_after:
                self._write_all(loop)
            else:
                self._write_delta(loop, self._version)

    def _settle(self, loop: Loop) -> None:
        """Take the result of the last delta."""
        if self._writing is None:
            return
        try:
            self._version = self._writing.result()
        except Exception as error:
            self._version = None
            loop.log.line(f"a delta of the export could not be written, a complete export follows: {error}")
        self._writing = None

    def _write_all(self, loop: Loop) -> None:
        state, tables = loop.state, self._section.tables
        assert self._local is not None
        program = loop.program.calibrated(loop.progress.calibration)
        if self._programs is None or self._calibration != loop.progress.calibration:
            self._programs, self._calibration = traced(program, _parameters(loop)), loop.progress.calibration
        made = export(
            program,
            state,
            self._local,
            overwrite=True,
            tables=tables,
            all_rows=True,
            programs=self._programs,
            newest_event=loop.progress.event_time,
        )
        if isinstance(self._folder, Remote):
            for file in (self._folder / FOLDER).rglob():
                file.unlink(missing_ok=True)
            send_folder(self._local, self._folder)
        embedding = state.optimizer.embedding
        self._ids = live_ids(loop.program.embedder, embedding)
        self._names = {name for function in made.functions.values() for name in function.parameters}
        self._version = Version(made.step)
        _use(loop, cleared(embedding, EXPORTS))
        give_back()
        loop.log.line(f"export step {loop.steps}  {self._folder}")

    def _write_delta(self, loop: Loop, parent: Version) -> None:
        program, state = loop.program, loop.state
        newest = loop.progress.event_time or time.time()
        embedding, changed = program.embedder.taken(state.optimizer.embedding, EXPORTS)
        _use(loop, embedding)
        arrays = _parameters(loop).arrays
        parameters = {name: np.array(arrays[name], order="C") for name in sorted(self._names)}
        came, went = {}, {}
        for table, own in live_ids(program.embedder, embedding).items():
            before, was = self._ids[table], np.zeros(program.embedder.tables[table].vocabulary_size, np.uint64)
            was[before.rows] = before.ids
            new = (was[own.rows] != own.ids) | ~np.isin(own.rows, before.rows)
            came[table] = own.ids[new].view(np.int64), own.rows[new]
            went[table] = np.setdiff1d(before.ids, own.ids).view(np.int64)
            self._ids[table] = own
        step, dtypes = int(state.optimizer.step), {n: t.dtype for n, t in program.embedder.tables.items()}

        def write() -> Version:
            rows = {
                name: _as_exported(name, own, dtypes[name], self._section.tables) for name, own in changed().items()
            }
            delta = Delta(Version(step, time=newest), rows, parameters, came, went)
            assert self._local is not None
            version = delta.write(self._local, parent)
            if isinstance(self._folder, Remote):
                send_folder(*(folder_of(place, version.delta) for place in (self._local, self._folder)))
            give_back(every=60)
            return version

        self._writing = self._pool.submit(write)


def _parameters(loop: Loop) -> Parameters:
    """Return the parameters that an export takes by default."""
    optimizer = used_in_evaluation(loop.program.config, loop.state.optimizer, None)
    return Parameters({"params": optimizer.params, "rest": loop.state.rest})


def _use(loop: Loop, embedding: Any) -> None:
    optimizer = dataclasses.replace(loop.state.optimizer, embedding=embedding)
    loop.state = dataclasses.replace(loop.state, optimizer=optimizer)


def _as_exported(name: str, changed: ChangedRows, dtype: str, wanted: TableDtype | None) -> ChangedRows:
    """Return the rows of a table, without its slots, in the dtype of the export."""
    values = changed.arrays[""]
    (made,) = smaller(Streamed(name, values.shape, dtype, [values]), wanted).blocks
    return ChangedRows(changed.rows, {"": np.asarray(made)})
