"""The training loop, which keeps the device busy."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO

import jax

from sparrow import processes
from sparrow.config import Config, fill_vocabularies, item_counts, need, train_pipeline
from sparrow.data import Collisions, DataError, Pipeline, WaitInterrupted, count_collisions
from sparrow.runs.errors import Elsewhere, FolderError, Interrupted
from sparrow.runs.loop.caches import CacheWork
from sparrow.runs.loop.calls import calls_of, until_due
from sparrow.runs.loop.candidates import ITEMS, candidate_notes
from sparrow.runs.loop.clock import Clock
from sparrow.runs.loop.early import Early
from sparrow.runs.loop.endings import ending, in_one_line
from sparrow.runs.loop.evaluation import EvaluationInterrupted, Evaluator
from sparrow.runs.loop.growing import IDS, Growing, Overwritten
from sparrow.runs.loop.in_flight import MOST, Call, InFlight, Started
from sparrow.runs.loop.learned_sizes import LearnedSizes
from sparrow.runs.loop.length import length
from sparrow.runs.loop.memory import memory
from sparrow.runs.loop.non_finite import NonFinite, culprit
from sparrow.runs.loop.preparer import Prepared
from sparrow.runs.loop.program import Program, TrainState
from sparrow.runs.loop.progress import Best, Progress
from sparrow.runs.loop.rates import Rates
from sparrow.runs.loop.signals import StopRequest
from sparrow.runs.loop.staging import Taken, steps_of
from sparrow.runs.loop.step import Report, TrainSteps, train_step, train_steps
from sparrow.runs.loop.stopping import Watch, check_metric, is_better
from sparrow.runs.loop.together import Requests, Together, batches_of
from sparrow.runs.loop.waiting import Waiting
from sparrow.runs.recorded.log import Log
from sparrow.runs.recorded.recorder import Recorder
from sparrow.runs.saved.resuming import resumed
from sparrow.runs.saved.run_folder import RunFolder
from sparrow.runs.saved.save_schedule import SaveSchedule, is_due
from sparrow.runs.saved.saving import Extra, Saver, owned_words
from sparrow.runs.saved.starting import started
from sparrow.runs.saved.vocabularies import Vocabularies
from sparrow.tasks import check_predictions
from sparrow.trees import named_leaves


@dataclasses.dataclass(frozen=True)
class Trained:
    """The result of a training run.

    Attributes:
      program: the program that was trained.
      state: its state after the last step.
      results: the results of the last evaluation; empty where there is no data to evaluate on.
      steps: the number of steps, before and after the run was resumed.
      examples_per_second: the speed over all steps but the first, which compiles; evaluations do not count.
      best: the best evaluation, where the config has a criterion for it.
    """

    program: Program
    state: TrainState
    results: dict[str, float]
    steps: int
    examples_per_second: float
    best: Best | None = None


Watcher = Callable[[int, Mapping[str, float]], bool]
"""Receives the step and the results of an evaluation, and returns whether to end."""


def train(
    config: Config,
    model_dir: str | Path | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    stream: TextIO | None = None,
    extras: Mapping[str, Extra] = MappingProxyType({}),
    watch: Watcher | None = None,
) -> Trained:
    """Train the model of a config and evaluate it: `sparrow.runs.train`, whose arguments these are."""
    path = model_dir if model_dir is not None else config.model_dir
    folder = None if path is None else RunFolder(path)
    with in_one_line(folder):
        return _train(config, folder, resume, overwrite, stream, extras, watch)


def _train(
    config: Config,
    folder: RunFolder | None,
    resume: bool,
    overwrite: bool,
    stream: TextIO | None,
    extras: Mapping[str, Extra],
    watch: Watcher | None,
) -> Trained:
    led = functools.partial(processes.led, rebuild=FolderError)
    if folder is not None:
        led(lambda: _refuse(folder, resume, overwrite))
    check_predictions(config.tasks)
    lines: list[str] = []  # for the log, before it is open
    words: Vocabularies | None = None
    if folder is not None and resume:
        config, words = owned_words(folder, config, lines.append)
    lines += fill_vocabularies(config)
    pipeline: Pipeline[Any] = train_pipeline(config)
    config, steps, note = length(config, pipeline)
    program = dataclasses.replace(Program.of(config), item_counts=item_counts(config))
    recorder = Recorder(program, folder.path if folder is not None and processes.is_first() else None)
    hashed = collisions(config)
    recorder.hashed = {one.feature: one._asdict() for one in hashed}
    lines += [str(one) for one in hashed if one.rows < one.words]
    batches = batches_of(pipeline, recorder.prepare)
    has_data = config.data is not None and config.data.evaluate_rows is not None
    evaluator = Evaluator(program) if has_data else None
    sizes = _learned_sizes(program, recorder, evaluator)
    growing = Growing(program)
    extras = {**recorder.extras, "sizes": sizes, IDS: growing, **extras}
    if program.item_counts is not None:
        extras[ITEMS] = program.item_counts
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
        loop = _Loop(program, batches, evaluator, log, saver, recorder, sizes, growing, state, progress)
        loop.watcher, loop.early = watch, early
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


class _Loop:
    """One run: the state, the clock and the counts."""

    def __init__(
        self,
        program: Program,
        pipeline: Pipeline[Prepared] | Together,
        evaluator: Evaluator | None,
        log: Log,
        saver: Saver | None,
        recorder: Recorder,
        sizes: LearnedSizes,
        growing: Growing,
        state: TrainState,
        progress: Progress,
    ) -> None:
        self.program, self.pipeline, self.evaluator, self.log, self.saver = program, pipeline, evaluator, log, saver
        self.recorder, self.sizes, self.growing = recorder, sizes, growing
        self.config = program.config
        self.state, self.progress = state, progress
        self.saved_at = self.began_at = progress.steps
        self.rates = Rates(program)
        self.watch = Watch(self.config.evaluate.early_stopping, evaluator.names if evaluator else [])
        self.watch.best, self.watch.without_gain = progress.watched
        self.watcher: Watcher | None = None
        self.early: Early | None = None
        self.stop = StopRequest()
        self.requests: Requests | None = None
        if isinstance(pipeline, Together):
            self.requests = requests = pipeline.requests
            requests.wants_stop = lambda: int(self.stop.received or 0)
            if evaluator is not None:
                evaluator.share(requests)
        shared = self.requests
        clock = time.monotonic if shared is None else lambda: float(shared.seconds)
        self.schedule = SaveSchedule(self.config.train.checkpoint, clock)
        self.in_flight = InFlight()
        self.report: Report | None = None  # of the last step
        self._undefined: set[str] = set()  # metrics whose NaN has been logged
        self.clock = recorder.clock = Clock()
        self.step = train_step(program, log.line, lambda: self.clock.paused("compilation"))
        self.waiting = Waiting(pipeline)
        self.caches = CacheWork(program.host)
        pipeline.is_idle = lambda: self.in_flight.is_empty
        pipeline.interrupted = lambda: self.stop.received is not None

    @property
    def steps(self) -> int:
        """Steps made so far."""
        return self.progress.steps

    def run(self) -> Trained:
        """Train to the end, or to an early end."""
        with contextlib.ExitStack() as stack:
            if self.saver is not None:
                stack.enter_context(self.saver.closing())
                stack.enter_context(self.stop.listening())
            try:
                self._train()
                return self._finish()
            except Exception as error:
                # Processes save together: only after an error that all of them have, at the same batch.
                shared = self.requests is None or isinstance(error, NonFinite | DataError | Elsewhere)
                save = self._save if shared else None
                better = ending(error, self.steps - self.began_at, self.saver, save)
                if better is error:
                    raise
                raise better from error

    def _train(self) -> None:
        if self.watch.is_over or (self.progress.evaluation_due and self._stops_after_evaluation()):
            return
        for call in calls_of(self._groups(), self.config.train.steps_per_call, self._until_pause):
            taken = call[0]
            if taken.epoch > self.progress.epoch:
                self._note(epoch=taken.epoch)
                self.recorder.epoch_ended(self.steps)
                if self._stops_at_pause(epochs=taken.epoch):
                    return
            if self.steps == self.began_at:
                scores = [self.program.train_scores, *([self.evaluator.scores] if self.evaluator else [])]
                self.program.check(self.state, taken.batches[0].feed, *scores)
            self._make(call)
            if self.recorder.prepare.unvarying.is_due:
                self._warn()
            if is_due(self.steps, self.config.train.log_every_steps):
                self._show()
            if line := self.waiting.line():
                self.log.line(line)
            if self._stops_at_pause(steps=self.steps):
                return
        if self.config.train.steps is None and self.steps > self.began_at:
            self.recorder.epoch_ended(self.steps)

    def _make(self, call: tuple[Taken, ...]) -> None:
        """Give the device the steps of a call."""
        is_first = self.steps == self.began_at
        for taken in call:
            self.recorder.took(taken.batches)
            self.sizes.took(taken.batches)
        feeds = [tuple(prepared.feed for prepared in taken.batches) for taken in call]
        go = None if self.report is None else self.report.go
        overwritten: tuple[Overwritten, ...] = ()
        history = None
        if len(call) == 1:
            self.state = self.program.advanced(self.state, call[0].swap)
            self.state, overwritten = self.growing.admit(self.state, call[0].batches, go)
            self.state, self.report = self.step(self.state, feeds[0], go)
        else:
            self.state, self.report, history = self.several(self.state, feeds, go)
        started = []
        for taken, own in zip(call, feeds, strict=True):
            before = self.progress
            self._note(steps=before.steps + 1, position=taken.position, evaluation_due=False)
            started.append(Started(self.steps, own, before.position, before.epoch, self.report, overwritten))
            self.clock.count(sum(feed.size for feed in own))
            self.log.advance()
        self._stop_if(self.in_flight.add(Call(tuple(started), history)))
        self.growing.forget(self.steps - MOST - 1)
        if is_first:
            self._settle()
            self.clock.restart()
            self.waiting.restart()

    @functools.cached_property
    def several(self) -> TrainSteps:
        """The program of several steps."""
        return train_steps(self.program, self.log.line, lambda: self.clock.paused("compilation"))

    def _until_pause(self) -> int:
        """Return the number of steps up to the next one after which the host has something to do, or the last."""
        train, evaluate = self.config.train, self.config.evaluate
        due = until_due(self.steps, [train.log_every_steps, evaluate.every_steps, train.checkpoint.every_steps])
        left = None if train.steps is None else train.steps - self.steps
        return min(number for number in (due, left) if number is not None)

    def _groups(self) -> Iterator[Taken]:
        """Return the micro-batches of each optimizer step."""
        steps = self.config.train.steps
        left = None if steps is None else max(steps - self.steps, 0)
        with contextlib.closing(steps_of(self.program, self.pipeline, left, self.early)) as groups:
            while True:
                try:
                    group = next(groups, None)
                except WaitInterrupted:
                    self._leave_if_asked()
                    return
                except Elsewhere:
                    raise
                except (OSError, RuntimeError, MemoryError) as error:  # a failure of a file system or a library
                    raise DataError(f"reading the data failed: {error}") from error
                if group is None:
                    return
                yield group
                del group

    def _stops_at_pause(self, *, steps: int | None = None, epochs: int | None = None) -> bool:
        """Evaluate and save between two steps where due, and return whether to stop."""
        stop, best = False, self.progress.best
        evaluate = self.config.evaluate
        if is_due(steps or epochs or 0, evaluate.every_epochs if steps is None else evaluate.every_steps):
            stop = self._stops_after_evaluation()
        if self.schedule.is_due(steps=steps, epochs=epochs) or self.progress.best != best:
            self._save()
        self._leave_if_asked()
        return stop

    @property
    def _asked(self) -> signal.Signals | None:
        """The signal that ends the run: of this process, or the one that all processes agree on."""
        if self.requests is None:
            return self.stop.received
        return signal.Signals(self.requests.stop) if self.requests.stop else None

    def _leave_if_asked(self) -> None:
        if self._asked is not None and self.saver is not None:
            self._save()
            self.saver.wait()
            raise Interrupted(self._asked, self.steps)

    def _settle(self) -> None:
        """Check every step that was started."""
        self._stop_if(self.in_flight.settle())

    def _stop_if(self, bad: Started | None) -> None:
        """Return to the last good step, whose state is still held, and stop."""
        if bad is None:
            return
        self._note(steps=bad.step - 1, position=bad.position, epoch=bad.epoch)
        made = bad.step - self.began_at - 1
        why = culprit(self.program, self.state, bad, made)
        self.state = self.growing.give_back(self.state, bad.overwritten, made)
        raise NonFinite(why)

    def _show(self) -> None:
        self._settle()
        if self.saver is not None:
            self.saver.check()
        fetched, metrics = jax.device_get((self.report, self.state.metrics))
        speed = {"examples_per_second": self.clock.lap(), "waiting_for_data": self.waiting.lap()}
        summaries = self.config.train.summaries
        values = {}
        if "loss" in summaries:
            values["loss"] = float(fetched.loss)
            if len(fetched.terms) > 1:
                values |= {f"loss/{task}": float(term) for task, term in fetched.terms.items()}
        scores = self.program.train_scores
        values |= scores.compute(metrics)
        faults = scores.reasons(metrics, values)
        self._log_undefined(f"{name} is NaN: {why}" for name, why in faults.items() if scores.has_faults(name, metrics))
        if "learning_rate" in summaries:
            values |= self.rates.at(int(self.state.optimizer.step))
        if fetched.gradient_norm is not None:
            values["gradient_norm"] = float(fetched.gradient_norm)
        values |= {f"gradient_norm/{path}": float(norm) for path, norm in fetched.gradient_norms.items()}
        histograms = {f"gradient/{path}": x for path, x in fetched.gradients.items()}
        if "parameter" in summaries:
            params = jax.device_get(named_leaves(self.state.optimizer.params))
            histograms |= {f"parameter/{path}": x for path, x in params.items()}
        self.log.report("train", self.steps, values | speed | self.caches.lap() | memory(), histograms)

    def _log_undefined(self, lines: Iterable[str]) -> None:
        """Log the reason of each metric that is NaN, once for each metric."""
        for line in lines:
            name = line.partition(" is NaN")[0]
            if name not in self._undefined:
                self._undefined.add(name)
                self.log.line(f"note   {line}")

    def _warn(self) -> None:
        for line in self.recorder.prepare.unvarying.warnings():
            self.log.line(line)

    def _stops_after_evaluation(self) -> bool:
        self._evaluate()
        if self.progress.evaluation_due:  # interrupted
            return False
        stop = self.watch.should_stop(self.progress.results)
        self._note(watched=(self.watch.best, self.watch.without_gain))
        if stop:
            self.recorder.stopped = self.watch.reason
            self.log.line(f"stopped early at step {self.steps}: {self.watch.reason}")
        elif self.watcher is not None and self.watcher(self.steps, self.progress.results):
            stop = True
            self.recorder.stopped = "from outside"
            self.log.line(f"stopped from outside at step {self.steps}")
        return stop

    def _evaluate(self) -> None:
        if self.evaluator is None or self.progress.evaluated_at == self.steps:
            return
        self._settle()
        with self.clock.paused("evaluation"), self.growing.at(self.steps):
            try:
                results = self.evaluator(self.state, self.log.line, lambda: self._asked is not None)
            except EvaluationInterrupted:
                self._note(evaluation_due=True)
                return
        self._note(results=results, evaluated_at=self.steps, evaluation_due=False)
        self.log.report("eval", self.steps, results)
        self._log_undefined(self.evaluator.undefined())
        best_by, best = self.config.train.checkpoint.best_by or self.watch.policy, self.progress.best
        is_best = best_by is not None and (best is None or is_better(results[best_by.metric], best.value, best_by.mode))
        self.recorder.evaluated(self.steps, self.evaluator.curves, self.evaluator.examples, is_best=is_best)
        if best_by is not None and is_best:
            self._note(best=Best(self.steps, results[best_by.metric]))
            if self.saver is not None:
                self.saver.set_status(self.progress)

    def _save(self) -> None:
        if self.saver is None or self.saved_at == self.steps:
            return
        self._settle()
        self._note(log=self.log.lengths())
        with self.clock.paused("saving"), self.growing.at(self.steps):
            path = self.saver.save(self.state, self.progress)
        self.saved_at = self.steps
        self.schedule.saved()
        self.log.line(f"save   step {self.steps}  {path}")

    def _finish(self) -> Trained:
        self._settle()
        self.program.flushed(self.state)
        self.growing.return_to(self.steps)
        self.clock.stop()
        if self.report is None:
            self.log.line(f"nothing is left to do after step {self.steps}")
        elif not is_due(self.steps, self.config.train.log_every_steps):
            self._show()
        self._warn()
        if self.pipeline.skipped:
            self.log.line(f"{self.pipeline.skipped} malformed rows were left out")
        if skipped := int(self.state.optimizer.skipped):
            self.log.line(f"{skipped} of {self.steps} steps were skipped: a loss or gradient was not finite")
        self._evaluate()
        self._leave_if_asked()
        self._save()
        if self.saver is not None:
            self.saver.finish(self.progress)
        results, best = dict(self.progress.results), self.progress.best
        return Trained(self.program, self.state, results, self.steps, self.clock.speed, best)

    def _note(self, **fields: Any) -> None:
        self.progress = dataclasses.replace(self.progress, **fields)


def collisions(config: Config) -> list[Collisions]:
    """Return the words and rows of each hashed feature in the first examples."""
    data = need(config.data, "data")
    return count_collisions(data.train_rows, data.features, data.bad_rows)


def _early(program: Program, batches: Pipeline[Prepared] | Together, stack: contextlib.ExitStack) -> Early | None:
    """Begin to read, where reading needs neither other processes nor tables that training changes on the host."""
    if isinstance(batches, Together) or program.host is not None or program.vocabularies is not None:
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
