"""Predictions and labels of each task that predicts a number, counted in bins: for the charts of a regression.

Bins are of equal width in ``asinh((x - center) / scale)``: narrow around the center, wide far from it, so that any
range of values fits. Center and scale are the mean and the deviation of the labels of the first batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.tasks.predictions import is_matching, predicted
from sparrow.tasks.task import Arrays, Task, sample_weights

States = dict[str, Any]

BINS: Final = 1024
REACH: Final = 12.0
"""The outermost bins begin at sinh(REACH), 81,000 deviations from the center."""
TOTALS: Final = ("weight", "prediction", "label", "squared_error")
"""The sums in each bin of predictions; values are counted from the center, in deviations."""


class ValueCounts:
    """Sums by prediction, and weights by label and by error. States travel through jitted functions."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = {name: task for name, task in tasks.items() if is_number(task)}

    def init(self) -> States:
        """Nothing counted."""
        return {name: _empty() for name in self._tasks}

    def update(self, states: States, outputs: Arrays, columns: Arrays) -> States:
        """Return the states with one more batch; runs inside jitted functions."""
        new = {}
        for name, task in self._tasks.items():
            weights = sample_weights(task, columns)
            new[name] = counted(states[name], predicted(name, task, outputs), columns[task.label], weights)
        return new

    def plain(self, states: States) -> dict[str, Any]:
        """Return, by task, the means of each bin with rows and the weights, for JSON."""
        made = {name: _plain(jax.device_get(state)) for name, state in states.items()}
        return {name: values for name, values in made.items() if values["weight"]}


def is_number(task: Task) -> bool:
    """Return whether the prediction is a number that the label may equal."""
    return task.losses[0].label_kind == "real" and not is_matching(task)


def _empty() -> States:
    zeros = jnp.zeros(BINS, jnp.float32)
    return {
        "center": jnp.zeros(()),
        "scale": jnp.zeros(()),
        "error_scale": jnp.zeros(()),
        "totals": jnp.zeros((BINS, len(TOTALS)), jnp.float32),
        "by_label": zeros,
        "by_error": jnp.copy(zeros),
    }


def counted(state: States, predictions: Any, labels: Any, weights: Any = None) -> States:
    """Return a state with one more batch: (batch,) numbers. Rows that are not finite are left out."""
    predictions, labels = predictions.astype(jnp.float32), jnp.asarray(labels, jnp.float32)
    weights = jnp.ones_like(labels) if weights is None else weights.astype(jnp.float32)
    weights = jnp.where(jnp.isfinite(predictions) & jnp.isfinite(labels), weights, 0.0)
    kept = weights > 0
    predictions, labels = jnp.where(kept, predictions, 0.0), jnp.where(kept, labels, 0.0)
    rows = jnp.maximum(weights.sum(), 1e-30)
    mean = (weights * labels).sum() / rows
    deviation = jnp.sqrt((weights * (labels - mean) ** 2).sum() / rows)
    usual = jnp.sqrt((weights * (predictions - labels) ** 2).sum() / rows)
    is_first = state["scale"] == 0
    center = jnp.where(is_first, mean, state["center"])
    scale = jnp.where(is_first, jnp.maximum(deviation, 1e-6 * jnp.maximum(jnp.abs(mean), 1.0)), state["scale"])
    error_scale = jnp.where(is_first, jnp.maximum(usual, 1e-6 * scale), state["error_scale"])
    p, y = (predictions - center) / scale, (labels - center) / scale
    sums = weights[:, None] * jnp.stack([jnp.ones_like(p), p, y, (p - y) ** 2], axis=1)
    errors = (predictions - labels) / error_scale
    return {
        "center": center,
        "scale": scale,
        "error_scale": error_scale,
        "totals": state["totals"] + jnp.zeros_like(state["totals"]).at[_bin(p)].add(sums),
        "by_label": state["by_label"] + jnp.zeros(BINS).at[_bin(y)].add(weights),
        "by_error": state["by_error"] + jnp.zeros(BINS).at[_bin(errors)].add(weights),
    }


def _bin(values: jax.Array) -> jax.Array:
    place = (jnp.arcsinh(values) / REACH + 1) * (BINS / 2)
    return jnp.clip(place, 0, BINS - 1).astype(jnp.int32)


def _middles() -> Any:
    return np.sinh(((np.arange(BINS) + 0.5) * 2 / BINS - 1) * REACH)


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    center, scale = float(state["center"]), float(state["scale"])
    totals = np.asarray(state["totals"], np.float64)
    totals = totals[totals[:, 0] > 0]
    weight = totals[:, 0]
    means = totals[:, 1:] / weight[:, None]
    made = {
        "kind": "numbers",
        "weight": weight.tolist(),
        "prediction": (center + scale * means[:, 0]).tolist(),
        "label": (center + scale * means[:, 1]).tolist(),
        "squared_error": (scale**2 * means[:, 2]).tolist(),
    }
    for name, middle, size in (("labels", center, scale), ("errors", 0.0, float(state["error_scale"]))):
        counts = np.asarray(state["by_label" if name == "labels" else "by_error"], np.float64)
        filled = np.flatnonzero(counts)
        made[name] = {"value": (middle + size * _middles()[filled]).tolist(), "weight": counts[filled].tolist()}
    return made
