"""The training loop, which keeps the device busy."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Thread
from typing import Any

from sparrow.data import DataError, Pipeline, WaitInterrupted
from sparrow.runs.errors import Elsewhere, Interrupted
from sparrow.runs.evaluating.evaluation import EvaluationInterrupted, Evaluator
from sparrow.runs.loop.calls import calls_of, until_due
from sparrow.runs.loop.clock import Clock
from sparrow.runs.loop.early import Early
from sparrow.runs.loop.preparer import Prepared
from sparrow.runs.loop.progress import Best, Progress
from sparrow.runs.loop.staging import Taken, groups_of
from sparrow.runs.loop.together import Requests, Together
from sparrow.runs.parts.endings import ending
from sparrow.runs.parts.learned_sizes import LearnedSizes
from sparrow.runs.parts.memory import memory
from sparrow.runs.parts.profiling import Profile
from sparrow.runs.parts.rates import Rates
from sparrow.runs.parts.showing import shown_of
from sparrow.runs.parts.signals import StopRequest
from sparrow.runs.parts.stopping import Watch, is_better
from sparrow.runs.parts.waiting import Waiting
from sparrow.runs.recorded.log import Log
from sparrow.runs.recorded.recorder import Recorder
from sparrow.runs.saved.save_schedule import SaveSchedule, is_due
from sparrow.runs.saved.saving import Saver
from sparrow.runs.step.ahead import Ahead, with_following
from sparrow.runs.step.in_flight import Call, InFlight, Started
from sparrow.runs.step.non_finite import NonFinite, culprit, without_shortage
from sparrow.runs.step.program import Program, TrainState
from sparrow.runs.step.step import Report, TrainSteps, train_step, train_steps


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


class Loop:
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
        ahead: Ahead | None,
        state: TrainState,
        progress: Progress,
    ) -> None:
        self.program, self.pipeline, self.evaluator, self.log, self.saver = program, pipeline, evaluator, log, saver
        self.recorder, self.sizes, self.ahead = recorder, sizes, ahead
        self.config = program.config
        self.state, self.progress = state, progress
        self.saved_at = self.began_at = progress.steps
        self.rates = Rates(program)
        self.watch = Watch(self.config.evaluate.early_stopping, evaluator.names if evaluator else [])
        self.watch.best, self.watch.without_gain = progress.watched
        self.watcher: Watcher | None = None
        self.early: Early | None = None
        self.profile: Profile | None = None
        self.starting: Thread | None = None  # work on the state, beside the first step
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
        if ahead is not None:
            ahead.log_programs(log.line, lambda: self.clock.paused("compilation"))
            log.line("train.pipeline is stale: a step looks rows up before the update of the step before it")
        self.waiting = Waiting(pipeline)
        pipeline.is_idle = lambda: self.in_flight.is_empty
        pipeline.interrupted = lambda: self.stop.received is not None

    @property
    def steps(self) -> int:
        """Steps made so far."""
        return self.progress.steps

    def run(self) -> Trained:
        """Train to the end, or to an early end."""
        with contextlib.ExitStack() as stack:
            if self.profile is not None:
                stack.callback(self.profile.end, lambda: None)  # after an error too
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
        if self.profile is not None:
            self.profile.before(len(call), self._settle)
        if self.starting is not None and not is_first:
            with self.clock.paused("start"):
                self.starting.join()  # this step and the next ones would share the memory and the cores with it
            self.starting = None
        for taken in call:
            self.recorder.took(taken.batches)
            self.sizes.took(taken.batches)
        feeds = [tuple(prepared.feed for prepared in taken.batches) for taken in call]
        go = None if self.report is None else self.report.go
        history = None
        if self.ahead is not None:
            self.state, self.report = self.ahead.step(self.state, call[0], go)
        elif len(call) == 1:
            self.state, self.report = self.step(self.state, feeds[0], go)
        else:
            self.state, self.report, history = self.several(self.state, feeds, go)
        started = []
        for taken, own in zip(call, feeds, strict=True):
            before = self.progress
            self._note(steps=before.steps + 1, position=taken.position, evaluation_due=False)
            started.append(Started(self.steps, own, before.position, before.epoch, self.report))
            self.clock.count(sum(prepared.examples for prepared in taken.batches))
            self.log.advance()
        self._stop_if(self.in_flight.add(Call(tuple(started), history)))
        if is_first:
            self._settle()
            shown_of(self.program, self.rates, self.report, self.state)  # compiles what the log needs
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
        if self.ahead is None:
            return self._read(left)
        more = None if left is None else left + 1  # looked up by the last step, for a run that goes on
        return itertools.islice(with_following(self._read(more)), left)

    def _read(self, left: int | None) -> Iterator[Taken]:
        """Yield the micro-batches of at most ``left`` steps."""
        with contextlib.closing(groups_of(self.pipeline, self.config.train.accumulate, left, self.early)) as groups:
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
        self.state, shortage = without_shortage(self.program, self.state)
        if shortage is not None:
            raise DataError(f"step {bad.step}: {shortage}")
        why = culprit(self.program, self.state, bad)
        if self.ahead is not None:
            self.ahead.forget()
        raise NonFinite(why)

    def _show(self) -> None:
        self._settle()
        if self.saver is not None:
            self.saver.check()
        shown = shown_of(self.program, self.rates, self.report, self.state)
        speed = {"examples_per_second": self.clock.lap(), "waiting_for_data": self.waiting.lap()}
        self._log_undefined(shown.faults)
        values = shown.values | speed | memory()
        self.log.report("train", self.steps, values, shown.histograms, shown.reasons)

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
        with self.clock.paused("evaluation"):
            try:
                results = self.evaluator(self.state, self.log.line, lambda: self._asked is not None)
            except EvaluationInterrupted:
                self._note(evaluation_due=True)
                return
        self._note(results=results, evaluated_at=self.steps, evaluation_due=False)
        self.log.report("eval", self.steps, results, reasons=self.evaluator.reasons)
        self._log_undefined(self.evaluator.undefined())
        best_by, best = self.config.train.checkpoint.best_by or self.watch.policy, self.progress.best
        is_best = best_by is not None and (best is None or is_better(results[best_by.metric], best.value, best_by.mode))
        self._count_ids()
        self.recorder.evaluated(self.steps, self.evaluator.curves, self.evaluator.examples, is_best=is_best)
        if best_by is not None and is_best:
            self._note(best=Best(self.steps, results[best_by.metric]))
            if self.saver is not None:
                self.saver.set_status(self.progress)

    def _count_ids(self) -> None:
        embedder, embedding = self.program.embedder, self.state.optimizer.embedding
        dynamic = [name for name, table in embedder.tables.items() if table.dynamic is not None]
        self.recorder.held = {name: embedder.held(embedding, name) for name in dynamic}

    def _save(self) -> None:
        if self.saver is None or self.saved_at == self.steps:
            return
        self._settle()
        self._note(log=self.log.lengths())
        with self.clock.paused("saving"):
            path = self.saver.save(self.state, self.progress)
        self.saved_at = self.steps
        self.schedule.saved()
        self.log.line(f"save   step {self.steps}  {path}")

    def _finish(self) -> Trained:
        self._settle()
        if self.profile is not None:
            self.profile.end(self._settle)
        self.clock.stop()
        self._count_ids()
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
