"""Early stopping by one number of the evaluations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sparrow.config import ConfigError, EarlyStopping, Problem
from sparrow.errors import Path
from sparrow.registry import nearest


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


def check_metric(metric: str, names: Sequence[str], field: Path) -> None:
    """Refuse a metric that is not among the results of evaluations."""
    if metric not in names:
        raise ConfigError([Problem(field, f"evaluation has no such result: {nearest(metric, names)}")])
