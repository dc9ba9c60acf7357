"""Resuming a run: the newest complete checkpoint, and the changes since."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import jax

from sparrow import processes
from sparrow.checkpoint import CheckpointError, Damaged, Saved, passed_over, whole
from sparrow.config import ConfigError
from sparrow.embedding import Embedder
from sparrow.feed import Pipeline
from sparrow.runs.loop.progress import Progress
from sparrow.runs.saved.differences import Difference, differences
from sparrow.runs.saved.loading import Extra, all_damaged, config_of, does_not_fit, progress_of
from sparrow.runs.saved.restoring import LogLine, extras_of, restored
from sparrow.runs.saved.run_folder import RunFolder
from sparrow.runs.step.program import Program, TrainState
from sparrow.versions import versions


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


def machine(embedder: Embedder) -> dict[str, str]:
    """Return the parts of a machine that decide the last bits of a run, for a checkpoint.

    With the same of them and the same versions, a resumed run has the bits of one that never stopped. XLA splits sums
    of matrix products by the number of threads, and backends and versions may add in another order.
    """
    return {
        "device": jax.devices()[0].device_kind,
        "devices": str(1 if embedder.shards is None else embedder.shards.mesh.size),
        "processes": str(processes.count()),
        "threads": str(threads()),
        "backend": ", ".join(sorted({embedder.backend_of(table) for table in embedder.tables})),
    }


def threads() -> int:
    """Return the threads that XLA computes with on a CPU: NPROC, or the cores that this process may use."""
    given = os.environ.get("NPROC", "")
    if given.isdecimal() and int(given):
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def log_differences(saved: Saved, embedder: Embedder, log: Callable[[str], None]) -> None:
    """Log the differences between the machine of a checkpoint and this one, in one line."""
    now: dict[str, Any] = {**machine(embedder), **versions()}
    before = {**_mapping(saved.about.get("machine")), **_mapping(saved.about.get("versions"))}
    names = [name for name in now if name in before and before[name] != now[name]]
    if names:
        changed = "; ".join(f"{name} was {before[name]}, is now {now[name]}" for name in names)
        log(f"the last bits may differ from those of a run that never stopped: {changed}")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
