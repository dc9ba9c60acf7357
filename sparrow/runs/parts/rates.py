"""The learning rates of a run, by name, at any step."""

from __future__ import annotations

from typing import Any

import jax

from sparrow.config import dense_optimizer
from sparrow.fields import at_step
from sparrow.runs.step.program import Program


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
