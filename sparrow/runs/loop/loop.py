"""The training loop: it keeps the device busy, and calls the parts of a run between the steps."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sparrow.data import DataError
from sparrow.feed import Pipeline
from sparrow.runs.errors import Elsewhere, Interrupted
from sparrow.runs.loop.progress import Clock, Progress
from sparrow.runs.loop.staging import Early, Taken, calls_of, groups_of, until_due
from sparrow.runs.loop.together import Batches
from sparrow.runs.recorded.log import Log
from sparrow.runs.saved.loading import Extra
from sparrow.runs.step.in_flight import Call, InFlight, Started
from sparrow.runs.step.non_finite import NonFinite, culprit, without_shortage
from sparrow.runs.step.packed import opened
from sparrow.runs.step.program import Program, TrainState
from sparrow.runs.step.step import Ahead, Held, Report, Steps


class Part:
    """A part of a run beside its steps, such as evaluation. The loop knows its parts by this class alone.

    The loop calls a method of all parts in the order of its list, in every process of a run. A part reads and changes
    the loop by its public attributes; one that needs the results of the last steps calls `Loop.settle` first. Methods
    that a part does not define do nothing.

    Attributes:
      every_steps: the part has something to do after each multiple of it: steps in one call end there. None: it has
        not, or can do it later.
      kept: further content of checkpoints, by name: its state is saved and restored with the run.
    """

    every_steps: int | None = None
    kept: Mapping[str, Extra] = MappingProxyType({})

    def begin(self, loop: Loop, stack: contextlib.ExitStack) -> None:
        """Begin, before the first batch is taken; ``stack`` is closed when the run ends, in any way."""

    def take(self, loop: Loop, call: Sequence[Taken]) -> None:
        """Look at the batches of the next steps, before the device gets them; the loop has the state before them."""

    def after_step(self, loop: Loop) -> None:
        """Do what is due after a step, or after the steps of a call."""

    def idle(self, loop: Loop) -> None:
        """Do what is due by time, while the next batch is waited for; not called where several processes train."""

    def after_epoch(self, loop: Loop) -> None:
        """Do what is due after an epoch, when the first batch of the next one is there."""

    def end(self, loop: Loop) -> None:
        """End, after the last step of a run without an error."""

    def failed(self, loop: Loop, error: BaseException) -> BaseException:
        """Return the error to raise instead of ``error``, which ends the run."""
        return error


@dataclasses.dataclass
class Loop:
    """One run: the state, the clock and the counts.

    Attributes:
      program: the program to train.
      batches: the batches of training.
      stepping: the compiled steps.
      parts: the parts of the run, in order.
      log: the log.
      held: the state after the last step that the device was given, perhaps packed; `state` is the state itself.
      progress: the position of the run.
      early: the batches, where reading has begun already.
      clock: the time of steps and pauses.
      began_at: the steps that were made before this session.
      report: the report of the last step; None before the first.
      is_over: whether a part has stopped the run.
      why_over: its reason; may be empty.
    """

    program: Program
    batches: Batches
    stepping: Steps | Ahead
    parts: Sequence[Part]
    log: Log
    held: Held
    progress: Progress
    early: Early | None = None

    def __post_init__(self) -> None:
        self.clock, self._in_flight = Clock(), InFlight()
        self.report: Report | None = None
        self.is_over, self.why_over = False, ""
        self.began_at = self.progress.steps
        self.stepping.log_programs(self.log.line, lambda: self.clock.paused("compilation"))
        self.batches.waits.is_idle = lambda: self._in_flight.is_empty
        if isinstance(self.batches, Pipeline) and self.early is None:
            self.batches.waits.idle = self._idle

    @property
    def state(self) -> TrainState:
        self.held = opened(self.held)
        return self.held

    @state.setter
    def state(self, state: TrainState) -> None:
        self.held = state

    @property
    def steps(self) -> int:
        return self.progress.steps

    def run(self) -> None:
        """Train to the end, or to an early end; state, progress and clock are then those of the last step."""
        with contextlib.ExitStack() as stack:
            try:
                for part in self.parts:
                    part.begin(self, stack)
                self._train()
                self.settle()
                self.clock.stop()
                for part in self.parts:
                    part.end(self)
            except (Exception, Interrupted) as error:
                better: BaseException = error
                for part in self.parts:
                    better = part.failed(self, better)
                if better is error:
                    raise
                raise better from error

    def stop(self, why: str = "") -> None:
        """Make the run end after the parts have done what is due now."""
        self.is_over, self.why_over = True, why

    def note(self, **fields: Any) -> None:
        self.progress = dataclasses.replace(self.progress, **fields)

    def settle(self) -> None:
        """Wait for every step that was started, and check it."""
        self._stop_if(self._in_flight.settle())

    def _train(self) -> None:
        if self.is_over:
            return
        left = None if self._last is None else max(self._last - self.steps, 0)
        groups = self.stepping.groups(self._read, left)
        for call in calls_of(groups, self.program.steps_per_call, self._until_pause):
            if call[0].epoch > self.progress.epoch:
                self.note(epoch=call[0].epoch)
                for part in self.parts:
                    part.after_epoch(self)
                if self.is_over:
                    return
            for part in self.parts:
                part.take(self, call)
            self._make(call)
            for part in self.parts:
                part.after_step(self)
            if self.is_over:
                return

    @property
    def _last(self) -> int | None:
        """The last step; None: the data decides."""
        steps = self.program.config.train.steps
        return None if steps is None else self.progress.began + steps

    def _idle(self) -> None:
        for part in self.parts:
            part.idle(self)

    def _make(self, call: tuple[Taken, ...]) -> None:
        """Give the device the steps of a call."""
        go = None if self.report is None else self.report.go
        self.held, self.report, history = self.stepping.make(self.held, call, go)
        started = []
        for taken in call:
            before = self.progress
            self.note(steps=before.steps + 1, position=taken.position, evaluation_due=False)
            feeds = tuple(prepared.feed for prepared in taken.batches)
            started.append(Started(self.steps, feeds, before.position, before.epoch))
            self.clock.count(sum(prepared.examples for prepared in taken.batches))
            self.log.advance()
        self._stop_if(self._in_flight.add(Call(tuple(started), history)))

    def _until_pause(self) -> int:
        """Return the number of steps up to the next one after which a part has something to do, or the last."""
        due = until_due(self.steps, [part.every_steps for part in self.parts])
        left = None if self._last is None else self._last - self.steps
        return min(number for number in (due, left) if number is not None)

    def _read(self, left: int | None) -> Iterator[Taken]:
        """Yield the micro-batches of at most ``left`` steps."""
        accumulate = self.program.config.train.accumulate
        with contextlib.closing(groups_of(self.batches, accumulate, left, self.early)) as groups:
            while True:
                try:
                    group = next(groups, None)
                except Elsewhere:
                    raise
                except (OSError, RuntimeError, MemoryError) as error:  # a failure of a file system or a library
                    raise DataError(f"reading the data failed: {error}") from error
                if group is None:
                    return
                yield group
                del group

    def _stop_if(self, bad: Started | None) -> None:
        """Return to the last good step, whose state is still held, and stop."""
        if bad is None:
            return
        self.note(steps=bad.step - 1, position=bad.position, epoch=bad.epoch)
        self.state, shortage = without_shortage(self.program, self.state)
        if shortage is not None:
            raise DataError(f"step {bad.step}: {shortage}")
        why = culprit(self.program, self.state, bad)
        self.stepping.forget()
        raise NonFinite(why)
