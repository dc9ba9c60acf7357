"""`Evaluating`: evaluations between steps and at the end, the best of them, and early stopping by them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping

from sparrow.config import EarlyStopping
from sparrow.runs.evaluating.evaluation import LOSS, EvaluationInterrupted, Evaluator
from sparrow.runs.loop.loop import Loop, Part
from sparrow.runs.loop.progress import Best
from sparrow.runs.loop.staging import is_due
from sparrow.runs.parts.recording import Recorder
from sparrow.runs.parts.signals import Signals

Watcher = Callable[[int, Mapping[str, float]], bool]
"""Receives the step and the results of an evaluation, and returns whether to end."""


class Evaluating(Part):
    """Evaluations every ``evaluate.every_steps`` steps or ``every_epochs`` epochs, and after the last step."""

    def __init__(self, evaluator: Evaluator, recorder: Recorder, signals: Signals, watcher: Watcher | None) -> None:
        """Take the evaluation, the recorder of its curves, the signals that interrupt it, and the user's callback."""
        self._evaluator, self._recorder, self._signals, self._watcher = evaluator, recorder, signals, watcher
        config = evaluator.program.config
        self.every_steps, self._every_epochs = config.evaluate.every_steps, config.evaluate.every_epochs
        self._watch = Watch(config.evaluate.early_stopping)
        self._best_by = config.train.checkpoint.best_by or config.evaluate.early_stopping

    def begin(self, loop: Loop, stack: contextlib.ExitStack) -> None:
        """Evaluate where that was interrupted before; a run that had stopped early stays stopped."""
        self._evaluator.log_programs(loop.log.line)
        self._watch.best, self._watch.without_gain = loop.progress.watched
        if self._watch.is_over:
            loop.stop()
        elif loop.progress.evaluation_due:
            self._judge(loop)

    def after_step(self, loop: Loop) -> None:
        if is_due(loop.steps, self.every_steps):
            self._judge(loop)

    def after_epoch(self, loop: Loop) -> None:
        if is_due(loop.progress.epoch, self._every_epochs):
            self._judge(loop)

    def end(self, loop: Loop) -> None:
        self._evaluate(loop)

    def _judge(self, loop: Loop) -> None:
        self._evaluate(loop)
        if loop.progress.evaluation_due:  # interrupted
            return
        stop = self._watch.should_stop(loop.progress.results)
        loop.note(watched=(self._watch.best, self._watch.without_gain))
        if stop:
            loop.stop(self._watch.reason)
            loop.log.line(f"stopped early at step {loop.steps}: {self._watch.reason}")
        elif self._watcher is not None and self._watcher(loop.steps, loop.progress.results):
            loop.stop("from outside")
            loop.log.line(f"stopped from outside at step {loop.steps}")

    def _evaluate(self, loop: Loop) -> None:
        if loop.progress.evaluated_at == loop.steps:
            return
        loop.settle()
        evaluator = self._evaluator
        with loop.clock.paused("evaluation"):
            try:
                results = evaluator(loop.state, loop.log.line, lambda: self._signals.asked is not None)
            except EvaluationInterrupted:
                loop.note(evaluation_due=True)
                return
        calibration = {name: tuple(platt) for name, platt in evaluator.calibration.items()}
        loop.note(results=results, evaluated_at=loop.steps, evaluation_due=False, calibration=calibration)
        loop.log.report("eval", loop.steps, results, reasons=evaluator.reasons)
        loop.log.undefined(evaluator.undefined())
        by, best = self._best_by, loop.progress.best
        is_best = by is not None and (best is None or is_better(results[by.metric], best.value, by.mode))
        if by is not None and best is not None and results[by.metric] == best.value and best.loss is not None:
            is_best = is_better(results[LOSS], best.loss, "min")
        self._recorder.evaluated(loop, evaluator.curves, evaluator.examples, is_best=is_best)
        if by is not None and is_best:
            loss = results[LOSS]
            loop.note(best=Best(loop.steps, results[by.metric], loss if math.isfinite(loss) else None))


class Watch:
    """A watch for evaluations without a gain.

    >>> watch = Watch(EarlyStopping(metric="auc", mode="max", patience=2))
    >>> [watch.should_stop({"auc": value}) for value in (0.6, 0.7, 0.65, 0.7)]
    [False, False, False, True]

    A value that is not a number is never better.
    """

    def __init__(self, policy: EarlyStopping | None) -> None:
        self.policy = policy
        self.best = math.nan
        self.without_gain = 0

    def should_stop(self, results: Mapping[str, float]) -> bool:
        """Take the results of one evaluation, and return whether to stop."""
        if self.policy is None:
            return False
        value = results[self.policy.metric]
        if is_better(value, self.best, self.policy.mode, self.policy.min_change):
            self.best, self.without_gain = value, 0
        else:
            self.without_gain += 1
        return self.is_over

    @property
    def is_over(self) -> bool:
        return self.policy is not None and self.without_gain >= self.policy.patience

    @property
    def reason(self) -> str:
        if self.policy is None:
            return ""
        times = f"{self.without_gain} evaluation{'s' * (self.without_gain > 1)}"
        return f"no better {self.policy.metric} than {self.best:.6g} in {times}"


def is_better(value: float, best: float, mode: str, min_change: float = 0.0) -> bool:
    """Return whether ``value`` beats ``best`` by more than ``min_change``; anything beats NaN, which beats nothing.

    >>> is_better(0.7, 0.6, "max"), is_better(0.7, 0.6, "min"), is_better(0.7, math.nan, "min")
    (True, False, True)
    """
    gain = value - best if mode == "max" else best - value
    return not math.isnan(value) and (math.isnan(best) or gain > min_change)
