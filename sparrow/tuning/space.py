"""`Searched`: a field of a config and the values that it may take."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final

from sparrow.errors import ConfigError, Problem

_RANGE: Final = re.compile(r"(?P<low>[^.|]+(?:\.\d+)?(?:e[+-]?\d+)?)\.\.(?P<high>[^|:]+)(?P<log>:log)?")
FORM: Final = "LOW..HIGH, LOW..HIGH:log, or A|B|C"


@dataclasses.dataclass(frozen=True)
class Searched:
    """A field to search.

    Attributes:
      field: the field, as overrides write it.
      choices: its values; empty for a range.
      low: the smallest number of a range.
      high: the largest number of a range.
      log: whether the range is searched by the logarithm.
    """

    field: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    @property
    def first(self) -> str:
        """The override with the first of all values."""
        return f"{self.field}={self.choices[0] if self.choices else self.low}"

    def suggest(self, trial: Any) -> str:
        """Return the override that a trial of Optuna suggests."""
        if self.choices:
            return f"{self.field}={trial.suggest_categorical(self.field, list(self.choices))}"
        if isinstance(self.low, int) and isinstance(self.high, int):
            return f"{self.field}={trial.suggest_int(self.field, self.low, self.high, log=self.log)}"
        return f"{self.field}={trial.suggest_float(self.field, self.low, self.high, log=self.log):.6g}"


def searched(text: str) -> Searched | None:
    """Return the field and the values of ``FIELD=VALUES``; None for an override with one value.

    >>> searched("train.dense_optimizer.learning_rate=1e-4..1e-2:log")
    Searched(field='train.dense_optimizer.learning_rate', choices=(), low=0.0001, high=0.01, log=True)
    >>> searched("train.batch_size=512|2048").choices
    ('512', '2048')
    >>> searched("model.architecture.num_experts=2..8").high
    8
    >>> searched("train.epochs=1"), searched("data.train.path=../clicks.parquet")
    (None, None)
    """
    field, equals, values = text.partition("=")
    if not equals:
        return None
    if "|" in values:
        choices = tuple(values.split("|"))
        if not all(choices) or len(set(choices)) < len(choices):
            raise ConfigError([Problem((field,), f"the choices must differ and not be empty, got {values!r}")])
        return Searched(field, choices)
    found = _RANGE.fullmatch(values)
    if found is None:
        return None
    try:
        low, high = _number(found["low"]), _number(found["high"])
    except ValueError:
        return None  # such as a path
    if not low < high or (found["log"] and low <= 0):
        raise ConfigError([Problem((field,), f"a range is {FORM}, from a lower to a higher number, got {values!r}")])
    return Searched(field, (), low, high, found["log"] is not None)


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)
