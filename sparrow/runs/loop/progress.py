"""`Progress`: the position of a run, besides the state that steps change."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
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
