"""The values of the last step for a line of the log."""

from __future__ import annotations

from typing import Any

import jax

from sparrow.runs.loop.program import Program, TrainState
from sparrow.runs.loop.rates import Rates
from sparrow.runs.loop.step import Report
from sparrow.trees import named_leaves


def values_of(
    program: Program, rates: Rates, report: Report | None, state: TrainState
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Return the values, the histograms, and a line for each metric that is NaN for a reason."""
    fetched, metrics = jax.device_get((report, state.metrics))
    summaries = program.config.train.summaries
    values = {}
    if "loss" in summaries:
        values["loss"] = float(fetched.loss)
        if len(fetched.terms) > 1:
            values |= {f"loss/{task}": float(term) for task, term in fetched.terms.items()}
    scores = program.train_scores
    values |= scores.compute(metrics)
    faults = scores.reasons(metrics, values)
    undefined = [f"{name} is NaN: {why}" for name, why in faults.items() if scores.has_faults(name, metrics)]
    if "learning_rate" in summaries:
        values |= rates.at(int(state.optimizer.step))
    if fetched.gradient_norm is not None:
        values["gradient_norm"] = float(fetched.gradient_norm)
    values |= {f"gradient_norm/{path}": float(norm) for path, norm in fetched.gradient_norms.items()}
    histograms = {f"gradient/{path}": x for path, x in fetched.gradients.items()}
    if "parameter" in summaries:
        params = jax.device_get(named_leaves(state.optimizer.params))
        histograms |= {f"parameter/{path}": x for path, x in params.items()}
    return values, histograms, undefined
