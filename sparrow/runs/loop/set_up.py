"""The two ways to a `Run`: `load` opens the folder of one, `train` makes one of a folder, data, a state and parts."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import gc
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TextIO

import jax

from sparrow import config as configs
from sparrow import processes
from sparrow.config import (
    Config,
    ConfigError,
    Problem,
    candidate_notes,
    counts_epochs,
    epochs_in_steps,
    fill_vocabularies,
    item_counts,
    need,
    train_pipeline,
)
from sparrow.data import Collisions, count_collisions
from sparrow.feed import Pipeline
from sparrow.files import AnyPath, Remote, at
from sparrow.registry import nearest
from sparrow.runs.errors import FolderError
from sparrow.runs.evaluating.evaluation import Evaluator, prediction_batch_size
from sparrow.runs.loop.loop import Loop, Part
from sparrow.runs.loop.placing import placed
from sparrow.runs.loop.progress import Progress
from sparrow.runs.loop.sharing import divide
from sparrow.runs.loop.staging import Early, Taken
from sparrow.runs.loop.stream_order import agree_on_stream, refuse_own_words
from sparrow.runs.loop.together import Batches, Together, batches_of
from sparrow.runs.parts.evaluating import Evaluating, Watcher
from sparrow.runs.parts.large_pages import Moving, keep_freed_memory, move_to_large_pages
from sparrow.runs.parts.learned_sizes import LearnedSizes
from sparrow.runs.parts.profiling import PROFILE, Profile
from sparrow.runs.parts.recording import Recorder
from sparrow.runs.parts.reporting import Reporting
from sparrow.runs.parts.saving import Saver, in_one_line
from sparrow.runs.parts.signals import Signals
from sparrow.runs.parts.windows import Windows
from sparrow.runs.recorded.log import Log
from sparrow.runs.run import Run
from sparrow.runs.saved.differences import refuse_unequal
from sparrow.runs.saved.loading import Extra, Step, loaded, owned_words, saved_progress
from sparrow.runs.saved.restoring import ITEMS, LogLine
from sparrow.runs.saved.resuming import resumed
from sparrow.runs.saved.run_folder import STREAM, RunFolder
from sparrow.runs.saved.starting import started
from sparrow.runs.saved.vocabularies import Vocabularies
from sparrow.runs.step.program import Program
from sparrow.runs.step.step import Ahead, Steps, looks_ahead
from sparrow.tasks import Scores, check_predictions

_BEGUN: Final = itertools.count()
"""Runs of this process that have begun."""
_led = functools.partial(processes.led, rebuild=FolderError)


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
    run = None if path is None else RunFolder(path)
    with in_one_line(run), contextlib.ExitStack() as stack:
        lines: list[str] = []  # for the log, before it is open
        config, words = _checked(config, run, resume, overwrite, lines)
        config = placed(config, run if resume else None, lines.append)
        pipeline: Pipeline[Any] = train_pipeline(config)
        config, steps, note = length(config, pipeline)
        program, hashed = _built(config, pipeline)
        keep_freed_memory()
        own = run if processes.is_first() else None  # written by this process
        recorder = Recorder(program, None if own is None else own.path, hashed)
        divide(pipeline, program, recorder.prepare, is_training=True)
        batches = batches_of(pipeline, recorder.prepare)
        signals = Signals(batches, listens=run is not None)
        parts = usual_parts(recorder, batches, signals, watch, profile)
        stepping = Ahead(program) if looks_ahead(program) else Steps(program)
        kept = {name: one for holder in (*parts, stepping) for name, one in holder.kept.items()} | dict(extras)
        if program.item_counts is not None:
            kept[ITEMS] = program.item_counts
        lines += [str(one) for one in hashed if one.rows < one.words] + ([note] if note else [])
        if run is not None:
            _led(lambda: _lock(run, stack, lines.append, resume, overwrite))
        start = None
        if run is not None and pipeline.stream is not None:
            pipeline.stream.load(run.path / STREAM)
        if run is not None and resume:
            start = resumed(run, program, pipeline, kept, lines.append, new_data)
        position = pipeline.position()
        early, is_new = None, start is None
        if is_new and pipeline.stream is None and not isinstance(batches, Together):
            early = Early(batches)  # begins to read
            stack.callback(early.close)
        if start is None:
            other = config.train.start_from
            first = program.allocated() if other is None else started(program, other, lines.append)
            start = first, Progress(position=position)
        state, progress = start
        parts += [Moving(move_to_large_pages(state)), signals]
        if run is not None:
            _led(lambda: run.begin(is_new=is_new))
            if pipeline.stream is not None:
                _led(functools.partial(pipeline.stream.keep, run.path / STREAM, is_new=is_new))
        agree_on_stream(pipeline, lambda: int(signals.received or 0))
        if not processes.is_first():
            stream = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        log = stack.enter_context(_log(config, own, steps, stream, progress))
        for line in [f"training {program.embedder}", *lines, *candidate_notes(config, program.item_counts)]:
            log.line(line)
        if run is not None:
            clock = batches.requests.clock if isinstance(batches, Together) else time.monotonic
            parts.append(Saver(run, program, words or Vocabularies.of(config), kept, log.line, clock))
        parts += _exports(config, run)
        loop = Loop(program, batches, stepping, parts, log, state, progress, early)
        loop.run()
    return _best(loop, None if path is None else at(path))


def _best(loop: Loop, folder: AnyPath | None) -> Run:
    """Return the run with its best state, where it knows one and has a folder; else with the last one."""
    done: dict[str, Any] = {"folder": folder, "steps": loop.steps, "examples_per_second": loop.clock.speed}
    program, progress, best = loop.program, loop.progress, loop.progress.best
    if folder is None or best is None or best.step == loop.steps:
        calibrated = program.calibrated(progress.calibration)
        return Run(calibrated, loop.state, step=loop.steps, results=progress.results, **done)
    progress, config = saved_progress(folder, best.step), program.config
    done |= {"results": progress.results, "note": f"step {best.step} is used, the best; the last is {loop.steps}"}
    program = program.calibrated(progress.calibration)
    return Run(program, lambda: loaded(folder, config, best.step).state, step=best.step, **done)


def as_config(given: Config | Mapping[str, Any] | str | AnyPath) -> Config:
    """Return a config from a config, a mapping, or the path of a file."""
    if isinstance(given, Config):
        return given
    if isinstance(given, Mapping):
        return configs.from_mapping(given)
    if isinstance(given, str | Path | Remote):
        return configs.load(given)
    raise ConfigError(f"a config is a Config, a mapping or the path of a file, got {type(given).__name__}")


def _exports(config: Config, folder: RunFolder | None) -> list[Part]:
    """Return the part that exports the model while it trains, where the config has one."""
    if config.export is None:
        return []
    from sparrow.exports import TimedExports

    if processes.count() > 1:
        why = "a model is exported while it trains by one process alone in this version; leave it out"
        raise ConfigError(why, at=("export",))
    if config.export.folder is None and folder is None:
        raise ConfigError("is required where the run has no folder", at=("export", "folder"))
    given = config.export.folder or f"{folder}/export"
    return [TimedExports(config.export, at(given), config.data)]


def _log(config: Config, folder: RunFolder | None, steps: int | None, stream: TextIO | None, progress: Progress) -> Log:
    """Return the log, which goes on where the run does."""
    by = config.train.checkpoint.best_by or config.evaluate.early_stopping
    return Log(
        None if folder is None else folder.written,
        total=None if steps is None else progress.began + steps,
        tensorboard=config.train.tensorboard,
        stream=stream,
        done=progress.steps,
        lengths=progress.log,
        first=None if by is None else by.metric,
    )


def _checked(
    config: Config, folder: RunFolder | None, resume: bool, overwrite: bool, lines: list[str]
) -> tuple[Config, Vocabularies | None]:
    """Refuse what cannot be trained; return the config with its vocabularies, and those that the run owns already."""
    if next(_BEGUN) and jax.default_backend() != "cpu":
        gc.collect()  # the tables of a run before may be held by a cycle, and fill the device
    if folder is not None:
        _led(lambda: _refuse(folder, resume, overwrite))
    if processes.count() > 1:
        refuse_unequal(config)
    check_predictions(config.tasks)
    words: Vocabularies | None = None
    if folder is not None and resume:
        config, words = owned_words(folder, config, lines.append)
    refuse_own_words(config)
    lines += fill_vocabularies(config)
    return config, words


def _refuse(folder: RunFolder, resume: bool, overwrite: bool) -> None:
    folder.refuse_if_unusable()
    folder.refuse_if_used()
    folder.refuse_if_taken(resume, overwrite)


def _lock(
    folder: RunFolder, stack: contextlib.ExitStack, log: Callable[[str], None], resume: bool, overwrite: bool
) -> None:
    stack.enter_context(folder.locked(log))
    folder.refuse_if_unusable()  # another run may have finished in the meantime
    folder.refuse_if_taken(resume, overwrite)


def _built(config: Config, pipeline: Pipeline[Any]) -> tuple[Program, list[Collisions]]:
    """Return the program, and the words and rows of each hashed feature in the first examples."""
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="sparrow-collisions") as pool:
        counting = pool.submit(collisions, config)  # reads while the model is traced
        program = Program.of(config)
        program = dataclasses.replace(program, item_counts=item_counts(config), id_kinds=pipeline.id_kinds)
    return program, counting.result()


def collisions(config: Config) -> list[Collisions]:
    """Return the words and rows of each hashed feature in the first examples."""
    data = need(config.data, "data")
    return count_collisions(data.train_rows, data.features, data.bad_rows)


def length(config: Config, pipeline: Pipeline[Any]) -> tuple[Config, int | None, str]:
    """Return the config with the steps of an epoch in its schedules, the number of steps, and a note for the log.

    Malformed rows that are left out make the number smaller; None: not known for the source. Rows are counted only
    where epochs matter; without a schedule that counts epochs, the note is empty.
    """
    train, scheduled = config.train, counts_epochs(config)
    batches = pipeline.batches_per_epoch() if scheduled or train.epochs is not None else None
    if batches is None:
        return config, train.steps, ""
    steps = train.steps or -(-batches * (train.epochs or 1) // train.accumulate)
    if not scheduled:
        return config, steps, ""
    epoch = max(1, -(-batches // train.accumulate))
    return epochs_in_steps(config, epoch), steps, f"learning rates that count epochs: an epoch is {epoch} steps"


def usual_parts(
    recorder: Recorder, batches: Batches, signals: Signals, watch: Watcher | None, profile: int | None
) -> list[Part]:
    """Return the parts but the last ones, which save and stop: those that count and log, then those that judge.

    Args:
      recorder: writes the files of the report.
      batches: the batches of training.
      signals: interrupt evaluations.
      watch: the callback, as `sparrow.runs.train` takes it.
      profile: steps to trace; None: none.
    """
    program, folder = recorder.program, recorder.folder
    data, config = program.config.data, program.config
    evaluator = None if data is None or data.evaluate_rows is None else Evaluator(program)
    _check_metrics(config, [] if evaluator is None else evaluator.names)
    if evaluator is None and (asked := [name for name, task in config.tasks.items() if task.calibrate]):
        fault = "true needs rows that are held out: give data.evaluate or data.split, or remove it"
        raise ConfigError([Problem(("tasks", name, "calibrate"), fault) for name in asked])
    preparers, sizes = {"train": recorder.prepare}, {"train": config.train.batch_size}
    if evaluator is not None:
        preparers["evaluate"] = evaluator.prepare
        sizes["evaluate"] = prediction_batch_size(config)
    parts: list[Part] = [recorder, _Checking(program, evaluator), LearnedSizes(preparers, sizes, program.embedder)]
    if folder is not None and profile is not None:
        parts.append(Profile(folder / PROFILE, profile))
    column = None if data is None else data.time_column
    if column is not None or config.evaluate.windows is not None:
        parts.append(Windows(program, column, 1 if data is None else data.ticks))
    parts.append(Reporting(program, batches, recorder.prepare.unvarying))
    if evaluator is not None:
        if isinstance(batches, Together):
            evaluator.share(batches.requests)
        parts.append(Evaluating(evaluator, recorder, signals, watch))
    return parts


def _check_metrics(config: Config, names: Sequence[str]) -> None:
    """Refuse a metric that is not among the results of evaluations."""
    best_by, stopping = config.train.checkpoint.best_by, config.evaluate.early_stopping
    for given, path in ((best_by, ("train", "checkpoint", "best_by")), (stopping, ("evaluate", "early_stopping"))):
        if given is not None and given.metric not in names:
            raise ConfigError(f"evaluation has no such result: {nearest(given.metric, names)}", at=(*path, "metric"))


class _Checking(Part):
    """Checks that outputs, labels and metrics fit together, by the first batch."""

    def __init__(self, program: Program, evaluator: Evaluator | None) -> None:
        self._scores: list[Scores] = [program.train_scores, *([evaluator.scores] if evaluator else [])]

    def take(self, loop: Loop, call: Sequence[Taken]) -> None:
        if loop.steps == loop.began_at:
            loop.program.check(loop.state, call[0].batches[0].feed, *self._scores)
