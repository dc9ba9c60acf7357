"""Early stopping: watches one number of the evaluations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sparrow.config import ConfigError, EarlyStopping, Problem
from sparrow.registry import nearest


class Watch:
    """Says when evaluations bring nothing better any more.

    >>> watch = Watch(EarlyStopping(metric="auc", mode="max", patience=2), ["loss", "auc"])
    >>> [watch.says_stop({"auc": value}) for value in (0.6, 0.7, 0.65, 0.7)]
    [False, False, False, True]

    A value that is not a number is never better.
    """

    def __init__(self, policy: EarlyStopping | None, names: Sequence[str]) -> None:
        self.policy = policy
        if policy is not None and policy.metric not in names:
            problem = f"evaluation has no such result: {nearest(policy.metric, names)}"
            raise ConfigError([Problem(("evaluate", "early_stopping", "metric"), problem)])
        self.best = math.nan
        self.without_gain = 0

    def says_stop(self, results: Mapping[str, float]) -> bool:
        """Takes the results of one evaluation; whether they were the last straw."""
        if self.policy is None:
            return False
        value = results[self.policy.metric]
        gain = value - self.best if self.policy.mode == "max" else self.best - value
        is_better = not math.isnan(value) and (math.isnan(self.best) or gain > self.policy.min_change)
        if is_better:
            self.best, self.without_gain = value, 0
        else:
            self.without_gain += 1
        return self.without_gain >= self.policy.patience

    @property
    def reason(self) -> str:
        """Why training ends."""
        if self.policy is None:
            return ""
        times = f"{self.without_gain} evaluation{'s' * (self.without_gain > 1)}"
        return f"no better {self.policy.metric} than {self.best:.6g} in {times}"
