"""The two ways to a `Run`: `train` makes a new one, `load` opens the folder of one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO

from sparrow import config as configs
from sparrow.config import Config, ConfigError
from sparrow.files import AnyPath, Remote, at
from sparrow.runs.loop import set_up
from sparrow.runs.parts.evaluating import Watcher
from sparrow.runs.run import Run
from sparrow.runs.saved.loading import Extra, Step, loaded, saved_progress
from sparrow.runs.saved.restoring import LogLine


def load(folder: str | AnyPath, config: Config | None = None, step: Step = None, *, log: LogLine | None = None) -> Run:
    """Open a saved run: with the best checkpoint where it knows one, else with the newest complete one.

    A run knows its best step with ``train.checkpoint.best_by`` or ``evaluate.early_stopping``.

    Args:
      folder: the folder of the run, which may be training.
      config: replaces the saved one, such as to read other data; tables and model must agree.
      step: the step of the checkpoint, "best" or "last".
      log: receives a line for each note, such as a damaged checkpoint; by default notes are warnings.
    """
    held = loaded(folder, config, step, log=log)
    results = held.progress.results if held.progress.evaluated_at == held.progress.steps else {}
    return Run(held.program, held.state, folder=at(folder), step=held.progress.steps, results=results, note=held.note)


def train(
    config: Config | Mapping[str, Any] | str | AnyPath,
    folder: str | AnyPath | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    stream: TextIO | None = None,
    extras: Mapping[str, Extra] = MappingProxyType({}),
    watch: Watcher | None = None,
    profile: int | None = None,
    new_data: bool = False,
) -> Run:
    """Train the model of a config and evaluate it.

    Ctrl-C and SIGTERM end it after the current step, with the state saved, by `Interrupted`. Other early ends raise
    `RunError`, such as `NonFinite`. The result holds the best state where the run knows one and has a folder.

    Args:
      config: a config with the sections ``data`` and ``model``: a `Config`, a mapping, or the path of a file.
      folder: the folder of checkpoints and logs; by default ``config.model_dir``; without one nothing is written.
      resume: whether to continue the run in that folder, to the same bits as if it had never stopped. This holds on
        the same kind of device, with as many threads, the same backend and versions; differences are logged.
      overwrite: whether to replace the run in that folder.
      stream: the stream of the log; by default the standard output.
      extras: further content of checkpoints, by name.
      watch: receives the step and the results of each evaluation between steps, and returns whether to end there.
      new_data: with ``resume``: whether the data may be other data than the run was on. It is then read from its
        beginning, for ``train.epochs`` or ``train.steps`` more; tables, slots, ids, optimizer, schedules, averages and
        vocabularies go on. On the same data it is ``resume`` alone.
      profile: the number of steps to trace, after the first few, to the folder ``profile`` of the run; None: none.
    """
    config = as_config(config)
    path = folder if folder is not None else config.model_dir
    made = set_up.train(
        config,
        path,
        resume=resume,
        overwrite=overwrite,
        stream=stream,
        extras=extras,
        watch=watch,
        profile=profile,
        new_data=new_data,
    )
    written = None if path is None else at(path)
    done: dict[str, Any] = {"folder": written, "steps": made.steps, "examples_per_second": made.examples_per_second}
    best = made.best
    if written is None or best is None or best.step == made.steps:
        return Run(made.program.calibrated(made.calibration), made.state, step=made.steps, results=made.results, **done)
    progress = saved_progress(written, best.step)
    note = f"step {best.step} is used, the best; the last is {made.steps}"
    config, step = made.program.config, best.step
    done |= {"results": progress.results, "note": note}
    program = made.program.calibrated(progress.calibration)
    return Run(program, lambda: loaded(written, config, step).state, step=step, **done)


def as_config(given: Config | Mapping[str, Any] | str | AnyPath) -> Config:
    """Return a config from a config, a mapping, or the path of a file."""
    if isinstance(given, Config):
        return given
    if isinstance(given, Mapping):
        return configs.from_mapping(given)
    if isinstance(given, str | Path | Remote):
        return configs.load(given)
    raise ConfigError(f"a config is a Config, a mapping or the path of a file, got {type(given).__name__}")
