"""The learning rates of a run, by name, at any step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparrow.config import dense_optimizer
from sparrow.fields import at_step
from sparrow.runs.loop.program import Program


class Rates:
    """Every learning rate that a config sets: by part for the dense parameters, by table where tables differ."""

    def __init__(self, program: Program) -> None:
        _, schedules = dense_optimizer(program.config.train.dense_optimizer)
        self._dense = {"dense" if part == "main" else f"dense/{part}": rate for part, rate in schedules.items()}
        self._tables: dict[str, Any] = {}
        rules = {name: table.optimizer for name, table in program.embedder.tables.items()}
        if len(set(rules.values())) == 1:
            self._tables["sparse"] = next(iter(rules.values())).learning_rate
        else:
            self._tables |= {f"sparse/{name}": rule.learning_rate for name, rule in rules.items()}

    def at(self, step: int) -> dict[str, float]:
        """Return the rates of the update that makes step ``step``, counted from 1."""
        rates = self._dense | self._tables
        return {f"learning_rate/{name}": _value(rate, step - 1) for name, rate in rates.items()}


def _value(rate: float | Callable[[Any], Any], updates: int) -> float:
    return float(at_step(rate, updates))
