"""The values of the last step for a line of the log."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from sparrow.runs.parts.rates import Rates
from sparrow.runs.step.program import Program, TrainState
from sparrow.runs.step.step import Report
from sparrow.trees import named_leaves


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
    values |= scores.compute(metrics)
    reasons = scores.reasons(metrics, values)
    faults = [f"{name} is NaN: {why}" for name, why in reasons.items() if scores.has_faults(name, metrics)]
    if "learning_rate" in summaries:
        values |= rates.at(int(state.optimizer.step))
    if fetched.gradient_norm is not None:
        values["gradient_norm"] = float(fetched.gradient_norm)
    values |= {f"gradient_norm/{path}": float(norm) for path, norm in fetched.gradient_norms.items()}
    histograms = {f"gradient/{path}": x for path, x in fetched.gradients.items()}
    if "parameter" in summaries:
        params = jax.device_get(named_leaves(state.optimizer.params))
        histograms |= {f"parameter/{path}": x for path, x in params.items()}
    return Shown(values, histograms, reasons, faults)
