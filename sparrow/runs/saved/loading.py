"""The checkpoints of a run, loaded again: the model, its config, its progress."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

import numpy as np

from sparrow.checkpoint import CheckpointError, Damaged, Saved, Vanished, passed_over, whole
from sparrow.config import Config, ConfigError, Problem, loads
from sparrow.data import INTEGERS, STRINGS, DataError
from sparrow.files import AnyPath
from sparrow.runs.loop.progress import Progress
from sparrow.runs.saved.differences import differences
from sparrow.runs.saved.restoring import LogLine, restored, with_item_counts
from sparrow.runs.saved.run_folder import RunFolder
from sparrow.runs.saved.vocabularies import Vocabularies
from sparrow.runs.step.on_mesh import on_these_devices
from sparrow.runs.step.program import Program, TrainState

Step = int | Literal["best", "last"] | None
"""A step; the best or the last one; None: the best where the run knows it, else the last."""
ATTEMPTS: Final = 100
"""Attempts to load the best checkpoint: a run that finds better steps meanwhile may remove it."""


class Extra(Protocol):
    """Further content of a checkpoint, such as counts for a report."""

    def state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return the arrays by name; they are copied."""

    def restore(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Continue from the arrays of `state`; without any, from the start."""


def opened(folder: str | AnyPath, step: Step = None, log: LogLine | None = None) -> Iterator[Saved]:
    """Yield the checkpoints to try, in order: the newest complete one, and earlier ones; or the requested one.

    Each is held until the next one is requested: the run, if it is training, does not remove it.
    """
    run = RunFolder(folder)
    if not run.steps:
        raise DataError("there is no saved model; train one into this folder first", str(folder))
    if step is None or step == "last":
        yield from whole(run.checkpoints, log or warn)
        return
    for _ in range(ATTEMPTS):
        wanted = best_step(run, log or warn) if step == "best" else step
        with contextlib.suppress(Vanished), contextlib.closing(_held(run, wanted)) as saved:
            yield saved


def _held(run: RunFolder, step: int) -> Saved:
    if step not in run.steps:
        saved = ", ".join(map(str, sorted(run.steps)))
        raise DataError(f"step {step} is not saved; the saved steps are {saved}", str(run.checkpoints))
    return Saved(run.checkpoints / str(step))


def best_step(run: RunFolder, log: LogLine) -> int:
    """Return the step of the best checkpoint that is saved."""
    if run.best is not None:
        return run.best
    for saved in whole(run.checkpoints, log):
        with contextlib.suppress(Damaged):
            best = progress_of(saved).best
            if best is not None and best.step in run.steps:
                return best.step
    raise DataError("no best step is known: train with train.checkpoint.best_by, or load another", str(run))


def chosen(folder: str | AnyPath, step: Step) -> Step:
    """Return the checkpoint to use where none is asked for: the best, where it is saved and is not the last one."""
    run = RunFolder(folder)
    return "best" if step is None and run.best in run.steps[1:] else step


def saved_config(folder: str | AnyPath, step: Step = None) -> Config:
    """Return the config of a saved model, with the vocabularies that the run owns."""
    for saved in opened(folder, chosen(folder, step), log=lambda _: None):
        return config_of(saved)
    raise all_damaged(folder)


def saved_progress(folder: str | AnyPath, step: int) -> Progress:
    """Return the progress of the run when a step was saved."""
    for saved in opened(folder, step, log=lambda _: None):
        return progress_of(saved)
    raise all_damaged(folder)


class Loaded(NamedTuple):
    """A saved model.

    Attributes:
      program: its functions.
      state: its state.
      progress: the position of the run when it was saved.
      note: a sentence where another checkpoint than the last is used without being asked for; else empty.
    """

    program: Program
    state: TrainState
    progress: Progress
    note: str = ""


def loaded(
    folder: str | AnyPath, config: Config | None = None, step: Step = None, *, log: LogLine | None = None
) -> Loaded:
    """Return a saved model, as `sparrow.runs.load` does."""
    use = chosen(folder, step)
    if use == step:
        return _loaded(folder, config, step, log)
    try:
        held = _loaded(folder, config, use, log)
    except Damaged as error:
        (log or warn)(f"the best checkpoint is damaged, the last one is used: {error}")
        return _loaded(folder, config, "last", log)
    by = held.program.config.train.checkpoint.best_by or held.program.config.evaluate.early_stopping
    best = "the best" if by is None else f"the best by {by.metric}"
    note = f"step {held.progress.steps} is used, {best}; the last is {max(RunFolder(folder).steps, default=0)}"
    if log is not None:
        log(note)
    return held._replace(note=note)


def _loaded(folder: str | AnyPath, config: Config | None, step: Step, log: LogLine | None) -> Loaded:
    for saved in opened(folder, step, log):
        given = on_these_devices(_config_as_given(saved), log or warn) if config is None else config
        program = Program.of(Vocabularies.saved(saved).owned(given, run_of(saved), log or warn))
        try:
            program = dataclasses.replace(with_item_counts(program, saved), id_kinds=_id_kinds(saved))
            progress = progress_of(saved)
            state = restored(program, saved, log or warn)
            return Loaded(program.calibrated(progress.calibration), state, progress)
        except Vanished:
            continue
        except Damaged as error:
            if step not in (None, "last"):
                raise
            (log or warn)(passed_over(saved.step, error))
        except CheckpointError as error:
            raise does_not_fit(saved, program.config, error) from None
    raise all_damaged(folder)


def _id_kinds(saved: Saved) -> dict[str, str]:
    held = saved.about.get("id_kinds", {})
    if not isinstance(held, dict) or not all(kind in (INTEGERS, STRINGS) for kind in held.values()):
        raise Damaged(f"{saved.path}: lists the kinds of ids in a way that cannot be read")
    return held


def config_of(saved: Saved) -> Config:
    """Return the config that a checkpoint was made with, with the vocabularies that its run owns."""
    return Vocabularies.saved(saved).owned(_config_as_given(saved), run_of(saved), lambda _: None)


def _config_as_given(saved: Saved) -> Config:
    try:
        return loads(saved.about["config"], source=str(saved.path))
    except (KeyError, TypeError, AttributeError):
        raise CheckpointError(f"{saved.path}: holds no config that can be read") from None


def progress_of(saved: Saved) -> Progress:
    """Return the progress of the run, or raise `Damaged` where the checkpoint does not hold it."""
    try:
        return Progress.from_dict(saved.about["progress"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise Damaged(f"{saved.path}: holds no progress that can be read") from None


def run_of(saved: Saved) -> Path:
    """Return the folder of the run that a checkpoint belongs to."""
    return saved.path.parent.parent


def owned_words(run: RunFolder, config: Config, log: LogLine) -> tuple[Config, Vocabularies | None]:
    """Return the config to continue with, and the vocabularies of the run; None where nothing is saved yet."""
    for saved in whole(run.checkpoints, lambda _: None):
        words = Vocabularies.saved(saved)
        config = words.owned(config, run.path, log)
        return config, words.with_new(config)
    return config, None


def does_not_fit(saved: Saved, config: Config, error: CheckpointError) -> ConfigError:
    """Return the error of one line, and one line for each field that differs from the saved config."""
    changed = [Problem(change.field, change.sentence) for change in differences(config_of(saved), config)]
    hint = "train.start_from takes the weights that fit"
    return ConfigError([Problem((), f"does not fit the model saved in {saved.path}: {error}; {hint}"), *changed])


def all_damaged(folder: str | AnyPath) -> CheckpointError:
    """Return the error of a run whose checkpoints are all damaged."""
    return CheckpointError(
        f"{folder}: every checkpoint is damaged or cannot be read; start again, or restore a copy of one"
    )


def warn(text: str) -> None:
    """Issue a warning, where no function for lines of the log is given."""
    warnings.warn(text, stacklevel=3)
