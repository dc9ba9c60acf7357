"""The training loop: batches in, steps out, the device never kept waiting."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TextIO

import jax

from sparrow.config import Config, train_pipeline
from sparrow.data import Pipeline
from sparrow.runs.clock import Clock
from sparrow.runs.evaluation import Evaluator
from sparrow.runs.feed import Feed, Prepared
from sparrow.runs.length import length
from sparrow.runs.log import Log
from sparrow.runs.program import Program, TrainState
from sparrow.runs.rates import Rates
from sparrow.runs.saving import save
from sparrow.runs.step import Report, by_path, train_step
from sparrow.runs.stopping import Watch

IN_FLIGHT: Final = 4
"""Steps that may be queued on the device: enough that it is never idle, few enough that batches do not pile up."""


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a training run gives.

    Attributes:
      program: what was trained.
      state: as it is after the last step.
      results: of the last evaluation; empty where there is no data to evaluate on.
      steps: how many were made.
      examples_per_second: over all steps but the first, which compiles; evaluations do not count.
    """

    program: Program
    state: TrainState
    results: dict[str, float]
    steps: int
    examples_per_second: float


def train(config: Config, model_dir: str | Path | None = None, *, stream: TextIO | None = None) -> Trained:
    """Trains what the config describes and evaluates it.

    Args:
      config: with the sections ``data`` and ``model``.
      model_dir: where logs and the trained model go; ``config.model_dir`` unless given; nothing is kept without one.
      stream: where lines go; the standard output unless given.
    """
    folder = model_dir if model_dir is not None else config.model_dir
    folder = None if folder is None else Path(folder)
    pipeline = train_pipeline(config)
    config, steps, note = length(config, pipeline)
    program = Program.of(config)
    pipeline.prepare = program.prepare
    has_data = config.data is not None and config.data.evaluate is not None
    evaluator = Evaluator(program) if has_data else None
    with Log(folder, total=steps, tensorboard=config.train.tensorboard, stream=stream) as log:
        log.say(f"training {program.embedder}")
        if note:
            log.say(note)
        if config.train.checkpoint.keep not in (None, 1):
            log.say("train.checkpoint.keep: one model is kept, the last that was saved")
        return _Loop(program, pipeline, evaluator, log, folder).run()


class _Loop:
    """One run: the state, the clock and the counts."""

    def __init__(
        self,
        program: Program,
        pipeline: Pipeline[Prepared],
        evaluator: Evaluator | None,
        log: Log,
        folder: Path | None,
    ) -> None:
        self.program, self.pipeline, self.evaluator, self.log = program, pipeline, evaluator, log
        self.folder = folder
        self.position = pipeline.position()  # after the batches of the last step
        self.config = program.config
        self.rates = Rates(program)
        self.watch = Watch(self.config.evaluate.early_stopping, evaluator.names if evaluator else [])
        self.state = program.init()
        self.steps = 0
        self.results: dict[str, float] = {}
        self.evaluated_at = self.saved_at = -1
        self.clock = Clock()

    def run(self) -> Trained:
        step = train_step(self.program)
        running: deque[Report] = deque()
        report: Report | None = None
        epoch = 0
        for feeds in self._groups():
            if self._epochs_begun() > epoch:
                epoch = self._epochs_begun()
                if is_due(epoch, self.config.train.checkpoint.every_epochs):
                    self._save()
                if is_due(epoch, self.config.evaluate.every_epochs) and self._evaluate_says_stop():
                    break
            if self.steps == 0:
                self.program.check(self.state, feeds[0], self.program.train_scores)
            self.state, report = step(self.state, feeds)
            self.steps += 1
            self.position = self.pipeline.position()
            self.clock.count(sum(feed.size for feed in feeds))
            self.log.advance()
            running.append(report)
            if self.steps == 1:
                wait(report)
                self.clock.restart()
            elif len(running) > IN_FLIGHT:
                wait(running.popleft())
            if is_due(self.steps, self.config.train.log_every_steps):
                self._show(report)
            if is_due(self.steps, self.config.train.checkpoint.every_steps):
                self._save()
            if is_due(self.steps, self.config.evaluate.every_steps) and self._evaluate_says_stop():
                break
        return self._finish(report)

    def _groups(self) -> Iterator[tuple[Feed, ...]]:
        """The micro-batches of each optimizer step; the last step of the data may have fewer."""
        accumulate, steps = self.config.train.accumulate, self.config.train.steps
        with contextlib.closing(iter(self.pipeline)) as batches:  # type: ignore[type-var]
            made = 0
            while steps is None or made < steps:
                feeds = tuple(prepared.feed for prepared in itertools.islice(batches, accumulate))
                if not feeds:
                    return
                made += 1
                yield feeds

    def _epochs_begun(self) -> int:
        """How many epochs were complete when the last batch began."""
        position = self.pipeline.position()
        # After the last rows of an epoch that fill no batch, the position is already the start of the next one.
        epoch: int = position["epoch"] - (position["row"] == 0)
        return epoch

    def _show(self, report: Report) -> None:
        fetched, metrics = jax.device_get((report, self.state.metrics))  # waits for the step
        speed = self.clock.lap()
        summaries = self.config.train.summaries
        values = {}
        if "loss" in summaries:
            values["loss"] = float(fetched.loss)
            if len(fetched.terms) > 1:
                values |= {f"loss/{task}": float(term) for task, term in fetched.terms.items()}
        values |= self.program.train_scores.compute(metrics)
        if "learning_rate" in summaries:
            values |= self.rates.at(self.steps)
        if fetched.gradient_norm is not None:
            values["gradient_norm"] = float(fetched.gradient_norm)
        values |= {f"gradient_norm/{path}": float(norm) for path, norm in fetched.gradient_norms.items()}
        histograms = {f"gradient/{path}": x for path, x in fetched.gradients.items()}
        if "parameter" in summaries:
            params = jax.device_get(by_path(self.state.optimizer.params))
            histograms |= {f"parameter/{path}": x for path, x in params.items()}
        self.log.report("train", self.steps, values | {"examples_per_second": speed}, histograms)

    def _evaluate_says_stop(self) -> bool:
        self._evaluate()
        stop = self.watch.says_stop(self.results)
        if stop:
            self.log.say(f"stopped early at step {self.steps}: {self.watch.reason}")
        return stop

    def _evaluate(self) -> None:
        if self.evaluator is None or self.evaluated_at == self.steps:
            return
        wait(self.state.optimizer.step)
        with self.clock.paused():
            self.results = self.evaluator(self.state, self.log.say)
        self.evaluated_at = self.steps
        self.log.report("eval", self.steps, self.results)

    def _save(self) -> None:
        if self.folder is None or self.saved_at == self.steps:
            return
        wait(self.state.optimizer.step)
        with self.clock.paused():
            path = save(self.folder, self.program, self.state, self.position)
        self.saved_at = self.steps
        self.log.say(f"saved  step {self.steps}  {path}")

    def _finish(self, report: Report | None) -> Trained:
        wait(report)
        self.clock.stop()
        if report is not None and not is_due(self.steps, self.config.train.log_every_steps):
            self._show(report)
        if self.pipeline.skipped:
            self.log.say(f"{self.pipeline.skipped} malformed rows were left out")
        if skipped := int(self.state.optimizer.skipped):
            self.log.say(f"{skipped} of {self.steps} steps were skipped: a gradient was not finite")
        self._evaluate()
        self._save()
        return Trained(self.program, self.state, self.results, self.steps, self.clock.speed)


def is_due(count: int, every: int | None) -> bool:
    """Whether something that happens every so many times happens now.

    >>> is_due(6, 3), is_due(7, 3), is_due(7, None)
    (True, False, False)
    """
    return every is not None and count % every == 0


def wait(values: Any) -> None:
    """Until the device has computed them."""
    jax.block_until_ready(values)  # type: ignore[no-untyped-call]
