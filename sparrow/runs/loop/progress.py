"""`Progress`: the position of a run, besides the state that steps change; `Clock`: its speed, and where time goes."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class Best(NamedTuple):
    """The best evaluation so far: after which step, its value, and its loss, which decides between equal values."""

    step: int
    value: float
    loss: float | None = None


@dataclasses.dataclass(frozen=True)
class Progress:
    """Plain values that a checkpoint holds, so that a run continues as if it had never stopped.

    Attributes:
      steps: optimizer steps made, including skipped ones.
      epoch: completed epochs, of the data that the run is on.
      began: the steps that were made on earlier data.
      position: the position in the data after the last step.
      evaluated_at: the step of the last evaluation, or -1.
      results: the results of that evaluation.
      evaluation_due: whether an evaluation after the last step was interrupted.
      best: the best evaluation by ``train.checkpoint.best_by``.
      watched: the state of early stopping: the best value, and the number of evaluations without a gain since.
      log: the lengths of the files of the log.
      calibration: the slope and intercept of the predictions of each task with ``calibrate``, by that evaluation.
      event_time: the time of the newest example so far, in seconds since 1970; None: not known.
    """

    steps: int = 0
    epoch: int = 0
    position: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    evaluated_at: int = -1
    results: Mapping[str, float] = dataclasses.field(default_factory=dict)
    evaluation_due: bool = False
    best: Best | None = None
    watched: tuple[float, int] = (math.nan, 0)
    log: Mapping[str, int] = dataclasses.field(default_factory=dict)
    began: int = 0
    event_time: float | None = None
    calibration: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)

    def on_new_data(self, position: Mapping[str, Any]) -> Progress:
        """Return the progress at the beginning of other data: steps go on, epochs and early stopping start again."""
        fresh = Progress(position=position)
        again = {name: getattr(fresh, name) for name in ("epoch", "position", "evaluation_due", "best", "watched")}
        return dataclasses.replace(self, began=self.steps, **again)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, where a number that is not finite is null."""
        fields: dict[str, Any] = dataclasses.asdict(self)
        fields["results"] = {name: _to_json(value) for name, value in self.results.items()}
        fields["watched"] = [_to_json(self.watched[0]), self.watched[1]]
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Progress:
        results = {name: _from_json(value) for name, value in fields["results"].items()}
        best = None if fields["best"] is None else Best(*fields["best"])
        watched = (_from_json(fields["watched"][0]), fields["watched"][1])
        made = cls(**{**fields, "results": results, "best": best, "watched": watched})
        numbers = (made.steps, made.epoch, made.began, made.evaluated_at, watched[1], *made.log.values())
        if not all(type(number) is int for number in numbers) or not isinstance(made.position, Mapping):
            raise ValueError("progress is counted in integers")
        return made


def _to_json(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _from_json(value: float | None) -> float:
    return math.nan if value is None else value


class Clock:
    """Examples per second: since the last lap, and over the complete run. The start and pauses do not count.

    Attributes:
      spent: the seconds before `restart`, as "start", and the seconds of pauses by name.
    """

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._reset()

    def restart(self) -> None:
        """Start again from zero; the time so far was the start."""
        self.spent["start"] = self.spent.get("start", 0.0) + self._now()
        self._reset()

    def _reset(self) -> None:
        self._seconds, self._examples = 0.0, 0
        self._lap = (0.0, 0)
        self._since: float | None = time.perf_counter()

    def count(self, examples: int) -> None:
        self._examples += examples

    def stop(self) -> None:
        self._seconds, self._since = self._now(), None

    def start(self) -> None:
        self._since = time.perf_counter()

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Stop the clock inside the block, whose time has a ``name``, and restore its state afterwards."""
        ran = self._since is not None
        self.stop()
        began = time.perf_counter()
        try:
            yield
        finally:
            self.spent[name] = self.spent.get(name, 0.0) + time.perf_counter() - began
            if ran:
                self.start()

    def lap(self) -> float:
        """Return the examples per second since the last call."""
        seconds, examples = self._now() - self._lap[0], self._examples - self._lap[1]
        self._lap = (self._now(), self._examples)
        return examples / seconds if examples and seconds > 0 else 0.0

    @property
    def speed(self) -> float:
        """Examples per second over the complete run."""
        return self._examples / self._now() if self._examples else 0.0

    @property
    def times(self) -> dict[str, float]:
        """Seconds by name: of steps, as "training", and of everything in `spent`."""
        return {"training": self._now(), **self.spent}

    def _now(self) -> float:
        return self._seconds + (0.0 if self._since is None else time.perf_counter() - self._since)
