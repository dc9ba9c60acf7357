"""Resuming a run: the newest complete checkpoint, and the changes since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparrow.checkpoint import CheckpointError, Damaged, Saved, passed_over, whole
from sparrow.config import ConfigError
from sparrow.feed import Pipeline
from sparrow.runs.loop.progress import Progress
from sparrow.runs.saved.differences import Difference, differences
from sparrow.runs.saved.loading import Extra, all_damaged, config_of, does_not_fit, progress_of
from sparrow.runs.saved.machine import log_differences
from sparrow.runs.saved.restoring import LogLine, extras_of, restored
from sparrow.runs.saved.run_folder import RunFolder
from sparrow.runs.step.program import Program, TrainState


def resumed(
    folder: RunFolder,
    program: Program,
    pipeline: Pipeline[Any],
    extras: Mapping[str, Extra],
    log: LogLine,
    new_data: bool = False,
) -> tuple[TrainState, Progress] | None:
    """Return the state and progress to continue from, and move pipeline and extras there; None where nothing is saved.

    ``new_data``: where the data is not that of the checkpoint, begin it, with everything else going on.
    Logs each changed field of the config. Raises `ConfigError` for changes that cannot work with the saved state.
    """
    if not folder.steps:
        log(f"{folder} holds no checkpoint; starting at step 0")
        return None
    for saved in whole(folder.checkpoints, log):
        changed = _log_changed_fields(saved, program, log)
        try:
            progress = progress_of(saved)
            state, arrays = restored(program, saved, log), saved.arrays()
        except Damaged as error:
            log(passed_over(saved.step, error))
            continue
        except CheckpointError as error:
            raise does_not_fit(saved, program.config, error) from None
        try:
            fresh = pipeline.position()
            if new_data and fresh["source"] != progress.position.get("source"):
                log(f"on new data from step {progress.steps} on")
                progress = progress.on_new_data(fresh)
            pipeline.restore(progress.position)
        except ValueError as error:
            hint = "`sparrow train CONFIG --continue RUN` goes on with other data"
            raise ConfigError(f"cannot continue {saved.path}: {error}; {hint}") from None
        for name, extra in extras.items():
            extra.restore(extras_of(arrays, name))
        log_differences(saved, program.embedder, log)
        log(f"resumed at step {progress.steps} from {saved.path}")
        _log_shorter_run(changed, progress, folder, log)
        return state, progress
    raise all_damaged(folder.path)


def _log_changed_fields(saved: Saved, program: Program, log: LogLine) -> list[Difference]:
    try:
        before = config_of(saved)
    except ConfigError as error:  # such as one of another version
        log(f"the config of {saved.path} cannot be read, so the changes are not known: {error}")
        return []
    changed = [change for change in differences(before, program.config) if change.field != ("model_dir",)]
    for difference in changed:
        log(f"changed: {difference}")
    return changed


def _log_shorter_run(changed: list[Difference], progress: Progress, folder: RunFolder, log: LogLine) -> None:
    """Log that a changed number of steps or epochs leaves nothing to train: often an override was not repeated."""
    for unit, done in (("steps", progress.steps - progress.began), ("epochs", progress.epoch)):
        for change in changed:
            if change.field == ("train", unit) and isinstance(change.now, int) and done >= change.now:
                log(
                    f"nothing is left to train: the run is beyond train.{unit} = {change.now}; repeat the overrides of "
                    f"the first command line, or give {folder.config} as the config"
                )
