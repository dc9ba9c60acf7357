"""The set-up of a training run: the folder, the data, the first state and the log, before the loop begins."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import gc
import itertools
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TextIO

import jax

from sparrow import processes
from sparrow.config import Config, fill_vocabularies, item_counts, need, train_pipeline
from sparrow.data import Collisions, Pipeline, count_collisions
from sparrow.files import AnyPath
from sparrow.runs.errors import FolderError
from sparrow.runs.evaluating.evaluation import Evaluator
from sparrow.runs.loop.candidates import ITEMS, candidate_notes
from sparrow.runs.loop.early import Early
from sparrow.runs.loop.length import length
from sparrow.runs.loop.loop import Loop, Trained, Watcher
from sparrow.runs.loop.preparer import Prepared
from sparrow.runs.loop.progress import Progress
from sparrow.runs.loop.sharing import divide
from sparrow.runs.loop.together import Together, batches_of
from sparrow.runs.parts.endings import in_one_line
from sparrow.runs.parts.learned_sizes import LearnedSizes
from sparrow.runs.parts.pages import keep_freed_memory, move_to_large_pages
from sparrow.runs.parts.profiling import PROFILE, Profile
from sparrow.runs.parts.stopping import check_metric
from sparrow.runs.recorded.log import Log
from sparrow.runs.recorded.recorder import Recorder
from sparrow.runs.saved.differences import refuse_unequal
from sparrow.runs.saved.resuming import resumed
from sparrow.runs.saved.run_folder import RunFolder
from sparrow.runs.saved.saving import Extra, Saver, owned_words
from sparrow.runs.saved.starting import started
from sparrow.runs.saved.vocabularies import Vocabularies
from sparrow.runs.step.ahead import ACTIVATIONS, Ahead
from sparrow.runs.step.program import Program, TrainState
from sparrow.tasks import check_predictions

_BEGUN: Final = itertools.count()
"""Runs of this process that have begun."""


def train(
    config: Config,
    path: str | AnyPath | None,
    *,
    resume: bool,
    overwrite: bool,
    stream: TextIO | None,
    extras: Mapping[str, Extra],
    watch: Watcher | None,
    profile: int | None,
) -> Trained:
    """Train the model of a config and evaluate it: `sparrow.runs.train`, whose arguments these are."""
    folder = None if path is None else RunFolder(path)
    with in_one_line(folder):
        return _train(config, folder, resume, overwrite, stream, extras, watch, profile)


def _train(
    config: Config,
    folder: RunFolder | None,
    resume: bool,
    overwrite: bool,
    stream: TextIO | None,
    extras: Mapping[str, Extra],
    watch: Watcher | None,
    profile: int | None,
) -> Trained:
    led = functools.partial(processes.led, rebuild=FolderError)
    if next(_BEGUN) and jax.default_backend() != "cpu":
        gc.collect()  # the tables of a run before may be held by a cycle, and fill the device
    if folder is not None:
        led(lambda: _refuse(folder, resume, overwrite))
    if processes.count() > 1:
        refuse_unequal(config)
    check_predictions(config.tasks)
    lines: list[str] = []  # for the log, before it is open
    words: Vocabularies | None = None
    if folder is not None and resume:
        config, words = owned_words(folder, config, lines.append)
    lines += fill_vocabularies(config)
    pipeline: Pipeline[Any] = train_pipeline(config)
    config, steps, note = length(config, pipeline)
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="sparrow-collisions") as pool:
        counting = pool.submit(collisions, config)  # reads while the model is traced
        program = Program.of(config)
        program = dataclasses.replace(program, item_counts=item_counts(config), id_kinds=pipeline.id_kinds)
    hashed = counting.result()
    keep_freed_memory()
    recorder = Recorder(program, folder.path if folder is not None and processes.is_first() else None)
    recorder.hashed = {one.feature: one._asdict() for one in hashed}
    lines += [str(one) for one in hashed if one.rows < one.words]
    divide(pipeline, program, recorder.prepare)
    batches = batches_of(pipeline, recorder.prepare)
    has_data = config.data is not None and config.data.evaluate_rows is not None
    evaluator = Evaluator(program) if has_data else None
    sizes = _learned_sizes(program, recorder, evaluator)
    ahead = Ahead(program) if config.train.pipeline == "stale" else None
    extras = {**recorder.extras, "sizes": sizes, **extras}
    if program.item_counts is not None:
        extras[ITEMS] = program.item_counts
    if ahead is not None:
        extras[ACTIVATIONS] = ahead
    lines += [note] if note else []
    with contextlib.ExitStack() as stack:
        if folder is not None:
            led(lambda: _lock(folder, stack, lines.append, resume, overwrite))
        start = resumed(folder, program, pipeline, extras, lines.append) if folder is not None and resume else None
        early = None
        if start is None:
            progress = Progress(position=pipeline.position())
            early = _early(program, batches, stack)
            state = _first(program, lines.append)
        else:
            state, progress = start
        moving = move_to_large_pages(state)
        _check_metrics(config, evaluator)
        saver = None
        if folder is not None:
            led(lambda: _begin(folder, is_new=start is None))
            saver = Saver(folder, program, words or Vocabularies.of(config), extras, lambda line: log.line(line))
            led(lambda: saver.begin(progress))
        if not processes.is_first():
            stream = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        log = stack.enter_context(
            Log(
                folder.written if folder is not None and processes.is_first() else None,
                total=steps,
                tensorboard=config.train.tensorboard,
                stream=stream,
                done=progress.steps,
                lengths=progress.log,
            )
        )
        log.line(f"training {program.embedder}")
        if evaluator is not None:
            evaluator.log_programs(log.line)
        for line in [*lines, *candidate_notes(config, program.item_counts)]:
            log.line(line)
        stack.enter_context(recorder.recording(progress.steps, log.line))
        loop = Loop(program, batches, evaluator, log, saver, recorder, sizes, ahead, state, progress)
        loop.watcher, loop.early, loop.starting = watch, early, moving
        if profile is not None and folder is not None and processes.is_first():
            loop.profile = Profile(folder.path / PROFILE, profile, log.line)
        return loop.run()


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


def _begin(folder: RunFolder, is_new: bool) -> None:
    folder.begin()
    if is_new:
        folder.clear()


def collisions(config: Config) -> list[Collisions]:
    """Return the words and rows of each hashed feature in the first examples."""
    data = need(config.data, "data")
    return count_collisions(data.train_rows, data.features, data.bad_rows)


def _early(program: Program, batches: Pipeline[Prepared] | Together, stack: contextlib.ExitStack) -> Early | None:
    """Begin to read, where reading needs no other processes."""
    if isinstance(batches, Together):
        return None
    early = Early(batches)
    stack.callback(early.close)
    return early


def _first(program: Program, log: Callable[[str], None]) -> TrainState:
    start = program.config.train.start_from
    return program.allocated() if start is None else started(program, start, log)


def _learned_sizes(program: Program, recorder: Recorder, evaluator: Evaluator | None) -> LearnedSizes:
    config = program.config
    preparers, batch_sizes = {"train": recorder.prepare}, {"train": config.train.batch_size}
    if evaluator is not None:
        preparers["evaluate"] = evaluator.prepare
        batch_sizes["evaluate"] = config.evaluate.batch_size or config.train.batch_size
    return LearnedSizes(preparers, batch_sizes, program.embedder)


def _check_metrics(config: Config, evaluator: Evaluator | None) -> None:
    best_by = config.train.checkpoint.best_by
    if best_by is not None:
        check_metric(best_by.metric, evaluator.names if evaluator else [], ("train", "checkpoint", "best_by", "metric"))
