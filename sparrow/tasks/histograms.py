"""Rows by score of each binary task, for ROC, precision-recall and calibration curves.

Scores are counted in bins of equal width of ``sigmoid(logit / 4)``. Order is kept, so curves and areas equal those of
the probabilities; and bins are narrow (5% of the probability, or less) from 0.0001 to 0.9999, where equal bins of
the probability itself would put all the scores of rare events into one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.metrics import AUC
from sparrow.tasks.predictions import predicted
from sparrow.tasks.sample_weights import sample_weights
from sparrow.tasks.task import Arrays, Task

States = dict[str, Any]

BINS: Final = 1000
FLATTER: Final = 4.0
SMALLEST: Final = 1e-7
"""Probabilities are clipped to this distance from 0 and 1."""


class ScoreHistograms:
    """The weight of positive and negative rows by score. States travel through jitted functions."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = {name: task for name, task in tasks.items() if is_binary(task)}
        self._metric = AUC(thresholds=BINS + 1, from_logits=True)

    def init(self) -> States:
        """Nothing counted."""
        return {name: self._metric.init() for name in self._tasks}

    def update(self, states: States, outputs: Arrays, columns: Arrays) -> States:
        """Return the states with one more batch; runs inside jitted functions."""
        new = {}
        for name, task in self._tasks.items():
            weights = sample_weights(task, columns)
            scores = flattened(predicted(name, task, outputs))
            new[name] = self._metric.update(states[name], scores, columns[task.label], weights=weights)
        return new

    def plain(self, states: States) -> dict[str, Any]:
        """Return, by task, the probability at the middle of each bin with rows, ascending, and the weights, for JSON.

        A task whose labels are not 0 or 1 is left out.
        """
        found = {}
        for name, state in states.items():
            totals = self._metric.totals(state)
            filled = np.flatnonzero(totals["positive"] + totals["negative"])
            if totals["faults"].any() or not len(filled):
                continue
            found[name] = {
                "score": _middles()[filled].tolist(),
                "positive": totals["positive"][filled].tolist(),
                "negative": totals["negative"][filled].tolist(),
            }
        return found


def is_binary(task: Task) -> bool:
    """Return whether the prediction is the probability of a label of 1."""
    return task.losses[0].is_probability


def flattened(probabilities: jax.Array) -> jax.Array:
    """Return their logits over 4, finite."""
    p = jnp.clip(probabilities.astype(jnp.float32), SMALLEST, 1 - SMALLEST)
    return (jnp.log(p) - jnp.log1p(-p)) / FLATTER


def _middles() -> Any:
    """Return the probability at the middle of each bin; the last bin is the one score 1."""
    middle = np.append((np.arange(BINS) + 0.5) / BINS, 1 - 0.5 / BINS)
    return 1 / (1 + ((1 - middle) / middle) ** FLATTER)
