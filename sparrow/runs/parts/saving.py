"""`Saver`: the checkpoints of a run: on schedule, when a step is the best, at the end, and after an error."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import jax

from sparrow import processes
from sparrow.checkpoint import CheckpointError, Checkpoints, rows_of
from sparrow.config import Checkpoint, ConfigError, Deltas, dumps, need
from sparrow.data import DataError
from sparrow.embedding import CHECKPOINTS, cleared
from sparrow.files import replace_file
from sparrow.runs.errors import Elsewhere, FolderError, Interrupted, RunError
from sparrow.runs.loop.loop import Loop, Part
from sparrow.runs.loop.progress import Best
from sparrow.runs.loop.staging import is_due
from sparrow.runs.loop.together import Together
from sparrow.runs.parts.event_schedule import EventSchedule
from sparrow.runs.saved.loading import Extra
from sparrow.runs.saved.restoring import LogLine, arrays_of
from sparrow.runs.saved.resuming import machine
from sparrow.runs.saved.run_folder import RunFolder
from sparrow.runs.saved.vocabularies import Vocabularies
from sparrow.runs.step.non_finite import NonFinite
from sparrow.runs.step.program import Program
from sparrow.versions import versions

DEFAULT_MINUTES: Final = 10.0


class Saver(Part):
    """Writer of the states of one run."""

    def __init__(
        self,
        folder: RunFolder,
        program: Program,
        words: Vocabularies,
        extras: Mapping[str, Extra],
        log: LogLine,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the content of checkpoints besides the state; ``now``: a clock that all processes share."""
        self._folder, self._program, self._words, self._extras = folder, program, words, extras
        section = program.config.train.checkpoint
        self.every_steps, self._schedule = section.every_steps, SaveSchedule(section, now)
        self._deltas, self._now, self._delta_at = section.deltas, now, now()
        data, of_deltas = program.config.data, None if section.deltas is None else section.deltas.every_event_minutes
        self._by_event = EventSchedule(section.every_event_minutes, data)
        self._deltas_by_event = EventSchedule(of_deltas, data)
        if section.deltas is not None:
            self.every_steps = math.gcd(section.every_steps or 0, section.deltas.every_steps or 0) or None
            if processes.count() > 1:
                why = "deltas are saved by one process alone in this version; leave them out"
                raise ConfigError(why, at=("train", "checkpoint", "deltas"))
        if section.every_event_minutes is not None and processes.count() > 1 and need(data, "data").has_shares:
            why = "needs data.shares: 1 where several processes train: each knows the times of its own rows alone"
            raise ConfigError(why, at=("train", "checkpoint", "every_event_minutes"))
        self._config = dumps(words.given(program.config))
        self._checkpoints = Checkpoints(
            folder.checkpoints,
            section.keep,
            log,
            folder.owns_checkpoint,
            lambda step: folder.written.add([f"checkpoints/{step}"]),
        )
        self._best: Best | None = None
        self._saved_at = -1

    def begin(self, loop: Loop, stack: contextlib.ExitStack) -> None:
        """Write the config into the folder, and rename checkpoints of later steps, which are all damaged."""
        stack.enter_context(self._closing())
        self._saved_at = loop.began_at
        if self._deltas is not None:
            self._program.embedder.taken(loop.state.optimizer.embedding, CHECKPOINTS)  # compiles
        for schedule in (self._by_event, self._deltas_by_event):
            schedule.is_due(loop.progress)  # what was passed before was saved then

        def write() -> None:
            for step in self._folder.steps:
                if step > loop.steps:
                    self._checkpoints.set_aside(step)
            self._words.write(self._program.config, self._folder.written)
            replace_file(self._folder.config, self._config.encode())
            self._set_status(loop)

        processes.led(write, rebuild=FolderError)
        self._checkpoints.best = None if loop.progress.best is None else loop.progress.best.step
        self._best = loop.progress.best

    def after_step(self, loop: Loop) -> None:
        """Save where it is due, or the step is the best."""
        if is_due(loop.steps, self._program.config.train.log_every_steps):
            self._checkpoints.check()  # raises the error of the last checkpoint, if it is known by now
        by_event, delta_by_event = (one.is_due(loop.progress) for one in (self._by_event, self._deltas_by_event))
        if by_event or self._schedule.is_due(steps=loop.steps) or self._is_best(loop):
            self.save(loop)
        elif self._deltas is not None and (delta_by_event or self._is_delta_due(loop.steps, self._deltas)):
            self.save(loop, delta=True)

    def idle(self, loop: Loop) -> None:
        """Save by time, where steps were made since."""
        if self._saved_at != loop.steps:
            self.after_step(loop)

    def _is_delta_due(self, steps: int, deltas: Deltas) -> bool:
        seconds = deltas.every_seconds
        if is_due(steps, deltas.every_steps):
            return True
        is_late = seconds is not None and self._now() - self._delta_at >= seconds
        return is_late and not self._checkpoints.is_linking  # a slow disk makes deltas rarer, not training slower

    def after_epoch(self, loop: Loop) -> None:
        if self._schedule.is_due(epochs=loop.progress.epoch) or self._is_best(loop):
            self.save(loop)

    def end(self, loop: Loop) -> None:
        """Save the last step, and note that the run is complete."""
        self._is_best(loop)
        self.save(loop)
        self._checkpoints.wait()
        self._set_status(loop, finished=True)

    def failed(self, loop: Loop, error: BaseException) -> BaseException:
        """Save the last good step where possible; the error names the last complete checkpoint."""

        def save() -> None:
            self.save(loop, delta=self._deltas is not None)
            self._checkpoints.wait()

        if isinstance(error, Interrupted):
            try:
                save()
                return error
            except Exception as second:
                error = second
        if not isinstance(error, Exception):
            return error
        # Processes save together: only after an error that all of them have, at the same batch.
        shared = not isinstance(loop.batches, Together) or isinstance(error, NonFinite | DataError | Elsewhere)
        return ending(error, loop.steps - loop.began_at, self._folder, save if shared else None)

    def save(self, loop: Loop, delta: bool = False) -> None:
        """Copy the state, or write it where it is large, and save in the background; ``delta``: what changed.

        The first save of a session is complete.
        """
        if self._saved_at == loop.steps:
            return
        loop.settle()
        loop.note(log=loop.log.lengths())
        with loop.clock.paused("saving"):
            delta = delta and self._checkpoints.can_link
            path = self._save(loop, delta)
        self._saved_at, self._delta_at = loop.steps, self._now()
        if delta:
            return
        self._schedule.saved()
        loop.log.line(f"save   step {loop.steps}  {path}")

    def _save(self, loop: Loop, delta: bool) -> Path:
        state, progress, embedder = loop.state, loop.progress, self._program.embedder
        about = {
            "step": int(state.optimizer.step),
            "progress": progress.to_dict(),
            "config": self._config,
            "vocabularies": self._words.to_dict(),
            "id_kinds": dict(self._program.id_kinds),
            "time": round(time.time(), 3),
            "versions": versions(),
            "machine": machine(embedder),
        }
        tables, arrays = rows_of(embedder, state.optimizer.embedding), arrays_of(embedder, state, self._extras)
        if self._deltas is not None:
            embedding, changed = state.optimizer.embedding, None
            if delta:
                embedding, changed = embedder.taken(embedding, CHECKPOINTS)
            else:
                embedding = cleared(embedding, CHECKPOINTS)
            optimizer = dataclasses.replace(state.optimizer, embedding=embedding)
            loop.state = dataclasses.replace(state, optimizer=optimizer)
            if changed is not None:
                after = self._deltas.compact_after
                return self._checkpoints.save_link(progress.steps, changed, arrays, about, after)
        copied = self._program.config.train.checkpoint.copy_bytes
        return self._checkpoints.save(progress.steps, tables, arrays, about, copied)

    def _is_best(self, loop: Loop) -> bool:
        """Return whether there is a new best step; its checkpoint stays once it is saved."""
        if loop.progress.best == self._best:
            return False
        self._best = loop.progress.best
        self._set_status(loop)
        return True

    def _set_status(self, loop: Loop, finished: bool = False) -> None:
        """Write whether the run is finished, and which step was the best."""
        best = loop.progress.best
        self._checkpoints.best = None if best is None else best.step
        if processes.is_first():
            self._folder.set_status({"finished": finished, "best": best})

    @contextlib.contextmanager
    def _closing(self) -> Iterator[None]:
        """Wait for the last checkpoint at the end; raise the error that ended the run instead of later ones."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(CheckpointError, OSError):
                self._checkpoints.close()
            raise
        self._checkpoints.close()


class SaveSchedule:
    """The schedule of checkpoints: by steps or epochs, and by time.

    >>> clock = iter([0.0, 30.0, 61.0])
    >>> schedule = SaveSchedule(Checkpoint(every_steps=5, every_minutes=1), now=lambda: next(clock))
    >>> schedule.is_due(steps=4), schedule.is_due(steps=6), schedule.is_due(steps=10)
    (False, True, True)
    """

    def __init__(self, checkpoint: Checkpoint, now: Callable[[], float] = time.monotonic) -> None:
        self._checkpoint, self._now = checkpoint, now
        counts = (checkpoint.every_steps, checkpoint.every_epochs, checkpoint.every_event_minutes)
        counted = any(count is not None for count in counts)
        minutes = checkpoint.every_minutes or (None if counted else DEFAULT_MINUTES)
        self._seconds = None if minutes is None else 60 * minutes
        self._saved = now()

    def is_due(self, *, steps: int | None = None, epochs: int | None = None) -> bool:
        """Return whether to save after ``steps`` steps, or at the end of ``epochs`` epochs."""
        if steps is not None and is_due(steps, self._checkpoint.every_steps):
            return True
        if epochs is not None and is_due(epochs, self._checkpoint.every_epochs):
            return True
        return self._seconds is not None and self._now() - self._saved >= self._seconds

    def saved(self) -> None:
        """Restart the clock."""
        if self._seconds is not None:
            self._saved = self._now()


def ending(error: Exception, made: int, folder: RunFolder, save: Callable[[], None] | None) -> Exception:
    """Save the state of the last good step, and return the error to raise instead of ``error``.

    Args:
      error: the error that ended the run.
      made: steps since the run began or was resumed.
      folder: the folder with the checkpoints.
      save: saves the current state, and waits for it; None: it cannot be saved now.
    """
    if isinstance(error, CheckpointError):
        return RunError(f"{error}; {_left(folder)}")
    if not made and not isinstance(error, NonFinite):
        return error
    if save is None:
        error.add_note(_left(folder))
        return RunError(f"{_sentence(error)}; {_left(folder)}") if isinstance(error, OSError) else error
    try:
        save()
    except NonFinite as first:  # of a step that was not checked yet: the first cause
        return ending(first, made, folder, save)
    except (CheckpointError, OSError) as second:
        return RunError(f"{_sentence(error)}; saving then failed too: {_sentence(second)}; {_left(folder)}")
    text = f"{_sentence(error)}\n{_left(folder)}"
    if isinstance(error, NonFinite):
        return NonFinite(text)
    if isinstance(error, DataError | OSError):
        return RunError(text)
    if isinstance(error, RunError):
        return type(error)(text)
    error.add_note(_left(folder))  # a bug in the program: show its traceback
    return error


@contextlib.contextmanager
def in_one_line(folder: RunFolder | None) -> Iterator[None]:
    """Turn errors of the operating system, and lack of memory, into a `RunError` of one line."""
    try:
        yield
    except (OSError, MemoryError) as error:
        raise RunError(f"{_sentence(error)}; {_left(folder)}") from error
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise RunError(f"the memory is full: {str(error).splitlines()[0]}; {_left(folder)}") from error


def _left(folder: RunFolder | None) -> str:
    try:
        steps = [] if folder is None else folder.steps
    except CheckpointError:
        return "the saved checkpoints cannot be listed now"
    if not steps:
        return "no checkpoint was saved before"
    return f"the checkpoint of step {steps[0]} is complete; continue from it with --resume"


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the disk is full ({error.filename})" if error.filename else "the disk is full"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return "the memory is full"
    return str(error) or type(error).__name__
