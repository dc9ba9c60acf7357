"""`Reporting`: the lines of training in the log: losses, metrics, rates, speed, memory, and waits for data."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import jax

from sparrow.config import dense_optimizer
from sparrow.feed import Unvarying
from sparrow.fields import at_step
from sparrow.files import proc_bytes
from sparrow.runs.loop.loop import Loop, Part
from sparrow.runs.loop.staging import is_due
from sparrow.runs.loop.together import Batches
from sparrow.runs.step.program import Program, TrainState
from sparrow.runs.step.step import Report
from sparrow.tasks import WINDOW
from sparrow.trees import named_leaves

EVERY: Final = 60.0
"""Seconds between two lines about waits for data."""


class Reporting(Part):
    """A line every ``train.log_every_steps`` steps and after the last one, and notes on the data."""

    def __init__(self, program: Program, batches: Batches, unvarying: Unvarying) -> None:
        """Take the batches, and the look for columns that hold one value throughout."""
        self.every_steps = program.config.train.log_every_steps
        self._rates, self._waiting, self._unvarying = Rates(program), Waiting(batches.waits), unvarying
        self._has_begun = False

    def after_step(self, loop: Loop) -> None:
        """Log what is due. The first step compiles: the clock starts after it."""
        if not self._has_begun:
            self._has_begun = True
            loop.settle()
            shown_of(loop.program, self._rates, loop.report, loop.state)  # compiles what the log needs
            loop.clock.restart()
            self._waiting.restart()
        if self._unvarying.is_due:
            self._warn(loop)
        if is_due(loop.steps, self.every_steps):
            self._show(loop)
        if line := self._waiting.line():
            loop.log.line(line)
        self.idle(loop)

    def idle(self, loop: Loop) -> None:
        stream = loop.batches.stream
        while stream is not None and stream.notes:
            loop.log.line(stream.notes.popleft())

    def end(self, loop: Loop) -> None:
        if loop.report is None:
            loop.log.line(f"nothing is left to do after step {loop.steps}")
        elif not is_due(loop.steps, self.every_steps):
            self._show(loop)
        self._warn(loop)
        if loop.batches.skipped:
            loop.log.line(f"{loop.batches.skipped} malformed rows were left out")
        late = None if loop.program.config.data is None else loop.program.config.data.late
        if late is not None and loop.batches.late:
            done = "trained on" if late.policy == "train" else "left out"
            loop.log.line(f"{loop.batches.late} rows came more than {late.after_seconds:g} s late, and were {done}")
        if skipped := int(loop.state.optimizer.skipped):
            loop.log.line(f"{skipped} of {loop.steps} steps were skipped: a loss or gradient was not finite")

    def _show(self, loop: Loop) -> None:
        loop.settle()
        shown = shown_of(loop.program, self._rates, loop.report, loop.state)
        speed = {"examples_per_second": loop.clock.lap(), "waiting_for_data": self._waiting.lap()}
        loop.log.undefined(shown.faults)
        loop.log.report("train", loop.steps, shown.values | speed | memory(), shown.histograms, shown.reasons)

    def _warn(self, loop: Loop) -> None:
        for line in self._unvarying.warnings():
            loop.log.line(line)


class Shown(NamedTuple):
    """The values of a step.

    Attributes:
      values: numbers by name.
      histograms: arrays, for TensorBoard.
      reasons: the reason of each metric that is NaN, by name.
      faults: a line for each metric that is NaN because of rows that it cannot judge.
    """

    values: dict[str, float]
    histograms: dict[str, Any]
    reasons: dict[str, str]
    faults: list[str]


def shown_of(program: Program, rates: Rates, report: Report | None, state: TrainState) -> Shown:
    """Return the values of the last step."""
    fetched, metrics = jax.device_get((report, state.metrics))
    summaries = program.config.train.summaries
    values = {}
    if "loss" in summaries:
        values["loss"] = float(fetched.loss)
        if len(fetched.terms) > 1:
            values |= {f"loss/{task}": float(term) for task, term in fetched.terms.items()}
    scores = program.train_scores
    metrics = {name: state for name, state in metrics.items() if not name.startswith(WINDOW)}
    values |= scores.compute(metrics)
    reasons = scores.reasons(metrics, values)
    faults = [f"{name} is NaN: {why}" for name, why in reasons.items() if scores.has_faults(name, metrics)]
    if "learning_rate" in summaries:
        values |= rates.at(int(state.optimizer.step))
    if fetched.gradient_norm is not None:
        values["gradient_norm"] = float(fetched.gradient_norm)
    values |= {f"gradient_norm/{path}": float(norm) for path, norm in fetched.gradient_norms.items()}
    values |= program.embedder.cache_traffic(state.optimizer.embedding)
    histograms = {f"gradient/{path}": x for path, x in fetched.gradients.items()}
    if "parameter" in summaries:
        params = jax.device_get(named_leaves(state.optimizer.params))
        histograms |= {f"parameter/{path}": x for path, x in params.items()}
    return Shown(values, histograms, reasons, faults)


class Rates:
    """Every learning rate that a config sets: by part for the dense parameters, by table where tables differ."""

    def __init__(self, program: Program) -> None:
        _, schedules = dense_optimizer(program.config.train.dense_optimizer)
        rates: dict[str, Any] = {
            "dense" if part == "main" else f"dense/{part}": rate for part, rate in schedules.items()
        }
        rules = {name: table.optimizer for name, table in program.embedder.tables.items()}
        if len(set(rules.values())) == 1:
            rates["sparse"] = next(iter(rules.values())).learning_rate
        else:
            rates |= {f"sparse/{name}": rule.learning_rate for name, rule in rules.items()}
        self._rates = rates
        self._fixed = {name: rate for name, rate in rates.items() if not callable(rate)}
        changing = {name: rate for name, rate in rates.items() if callable(rate)}
        # One program: each operation outside of one is a program of its own.
        self._scheduled = jax.jit(lambda updates: {name: at_step(rate, updates) for name, rate in changing.items()})
        self._is_changing = bool(changing)

    def at(self, step: int) -> dict[str, float]:
        """Return the rates of the update that makes step ``step``, counted from 1."""
        found = self._fixed | (jax.device_get(self._scheduled(step - 1)) if self._is_changing else {})
        return {f"learning_rate/{name}": float(found[name]) for name in self._rates}


def memory() -> dict[str, float]:
    """Return the bytes of ``host_memory`` (resident set of this process) and, where known, ``device_memory``.

    On a machine whose only device is its CPU, the tables are in the process's own memory.
    """
    held: dict[str, float] = {}
    stats = [device.memory_stats() for device in jax.local_devices()]
    if stats and all(of_device and "bytes_in_use" in of_device for of_device in stats):
        held["device_memory"] = float(sum(of_device["bytes_in_use"] for of_device in stats))
    if resident := status_bytes("VmRSS"):
        held["host_memory"] = float(resident)
    return held


def status_bytes(field: str) -> int | None:
    """Return a number of bytes from Linux's status of this process, such as VmRSS or VmHWM; None where missing."""
    return proc_bytes("/proc/self/status").get(field)


class Waited(Protocol):
    """The time for which batches were waited for."""

    seconds: float


class Waiting:
    """The time that a pipeline keeps the device waiting.

    >>> class Slow:
    ...     seconds = 0.0
    >>> now = [0.0]
    >>> waiting = Waiting(Slow(), clock=lambda: now[0])
    >>> now[0], Slow.seconds = 100.0, 25.0
    >>> waiting.lap(), waiting.line()
    (0.25, 'the device waited for data 25% of the last 100 s; `sparrow feed` shows where the time goes')
    >>> waiting.lap(), waiting.line()
    (0.0, None)
    """

    def __init__(self, waits: Waited, clock: Callable[[], float] = time.perf_counter) -> None:
        self._waits, self._clock = waits, clock
        self.restart()

    def restart(self) -> None:
        self._lap = self._line = self._now()

    def lap(self) -> float:
        """Return the share since the last call."""
        before, self._lap = self._lap, self._now()
        return _share(before, self._lap)

    def line(self) -> str | None:
        """Return a line for the log, once a minute."""
        now = self._now()
        seconds = now[0] - self._line[0]
        if seconds < EVERY:
            return None
        share = _share(self._line, now)
        self._line = now
        advice = "; `sparrow feed` shows where the time goes" if share >= 0.1 else ""
        return f"the device waited for data {share:.0%} of the last {seconds:.0f} s{advice}"

    def _now(self) -> tuple[float, float]:
        return self._clock(), self._waits.seconds


def _share(before: tuple[float, float], now: tuple[float, float]) -> float:
    seconds = now[0] - before[0]
    return min((now[1] - before[1]) / seconds, 1.0) if seconds > 0 else 0.0
