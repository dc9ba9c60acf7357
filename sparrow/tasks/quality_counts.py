"""`QualityCounts`: the data of the charts of an evaluation: tasks of probabilities, of numbers, and of ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.metrics import AUC
from sparrow.tasks.candidates import by_candidate
from sparrow.tasks.predictions import is_matching, judged
from sparrow.tasks.task import Arrays, Task, sample_weights

States = dict[str, Any]


class QualityCounts:
    """Counts of fixed size for each task of one of the `KINDS`. States travel through jitted functions."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = tasks
        self._kinds = {name: kind for name, task in tasks.items() for kind in KINDS if kind.holds(task)}

    def init(self) -> States:
        return {name: kind.empty() for name, kind in self._kinds.items()}

    def update(self, states: States, outputs: Arrays, columns: Arrays) -> States:
        """Return the states with one more batch; runs inside jitted functions."""
        outputs, columns = by_candidate(self._tasks, outputs, columns)
        new = {}
        for name, kind in self._kinds.items():
            task = self._tasks[name]
            weights = sample_weights(task, columns)
            new[name] = kind.counted(states[name], *judged(name, task, outputs, columns), weights)
        return new

    def plain(self, states: States) -> dict[str, Any]:
        """Return the counts by task, for JSON; a task without counted rows is left out."""
        made = {name: self._kinds[name].plain(jax.device_get(state)) for name, state in states.items()}
        return {name: counts for name, counts in made.items() if counts is not None}


class Kind(NamedTuple):
    """Counts of one kind of tasks.

    Attributes:
      holds: whether a task is of this kind.
      empty: returns a state in which nothing is counted.
      counted: returns a state with one more batch: of predictions and labels as metrics take them, and weights or None.
      plain: returns the counts for JSON; None: there are none.
    """

    holds: Callable[[Task], bool]
    empty: Callable[[], Any]
    counted: Callable[[Any, Any, Any, Any], Any]
    plain: Callable[[Any], dict[str, Any] | None]


SCORE_BINS: Final = 1000
FLATTER: Final = 4.0
SMALLEST: Final = 1e-7
"""Probabilities are clipped to this distance from 0 and 1."""
_SCORES: Final = AUC(thresholds=SCORE_BINS + 1, from_logits=True)


def _is_binary(task: Task) -> bool:
    """Return whether the prediction is the probability of a label of 1."""
    return task.losses[0].is_probability


def _counted_scores(state: Any, probabilities: jax.Array, labels: Any, weights: Any) -> Any:
    """Add the weight of positive and negative rows by score: the logit over `FLATTER`."""
    p = jnp.clip(probabilities.astype(jnp.float32), SMALLEST, 1 - SMALLEST)
    return _SCORES.update(state, (jnp.log(p) - jnp.log1p(-p)) / FLATTER, labels, weights=weights)


def _plain_scores(state: Any) -> dict[str, Any] | None:
    """Return the probability at the middle of each bin with rows, ascending, and the weights.

    None where labels are not 0 or 1.
    """
    totals = _SCORES.totals(state)
    filled = np.flatnonzero(totals["positive"] + totals["negative"])
    if totals["faults"].any() or not len(filled):
        return None
    middle = np.append((np.arange(SCORE_BINS) + 0.5) / SCORE_BINS, 1 - 0.5 / SCORE_BINS)  # the last is the one score 1
    return {
        "score": (1 / (1 + ((1 - middle) / middle) ** FLATTER))[filled].tolist(),
        "positive": totals["positive"][filled].tolist(),
        "negative": totals["negative"][filled].tolist(),
    }


BINS: Final = 1024
"""Bins of equal width in ``asinh((x - center) / scale)``: narrow around the center, wide far from it, so that any range
of values fits. Center and scale are the mean and the deviation of the labels of the first batch."""
REACH: Final = 12.0
"""The outermost bins begin at sinh(REACH), 81,000 deviations from the center."""
TOTALS: Final = ("weight", "prediction", "label", "squared_error")
"""The sums in each bin of predictions; values are counted from the center, in deviations."""


def _is_number(task: Task) -> bool:
    """Return whether the prediction is a number that the label may equal."""
    return task.losses[0].label_kind == "real" and not is_matching(task)


def _no_numbers() -> States:
    state = {name: jnp.zeros(()) for name in ("center", "scale", "error_scale")}
    state |= {name: jnp.zeros(BINS, jnp.float32) for name in ("by_label", "by_error")}
    return {**state, "totals": jnp.zeros((BINS, len(TOTALS)), jnp.float32)}


def _counted_numbers(state: States, predictions: Any, labels: Any, weights: Any) -> States:
    """Add sums by prediction, and weights by label and by error. Rows that are not finite are left out."""
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


def _plain_numbers(state: States) -> dict[str, Any] | None:
    """Return the means of each bin with rows, and the weights."""
    center, scale = float(state["center"]), float(state["scale"])
    totals = np.asarray(state["totals"], np.float64)
    totals = totals[totals[:, 0] > 0]
    if not len(totals):
        return None
    weight = totals[:, 0]
    means = totals[:, 1:] / weight[:, None]
    made = {
        "kind": "numbers",
        "weight": weight.tolist(),
        "prediction": (center + scale * means[:, 0]).tolist(),
        "label": (center + scale * means[:, 1]).tolist(),
        "squared_error": (scale**2 * means[:, 2]).tolist(),
    }
    middles = np.sinh(((np.arange(BINS) + 0.5) * 2 / BINS - 1) * REACH)
    for name, middle, size in (("label", center, scale), ("error", 0.0, float(state["error_scale"]))):
        counts = np.asarray(state[f"by_{name}"], np.float64)
        filled = np.flatnonzero(counts)
        made[f"{name}s"] = {"value": (middle + size * middles[filled]).tolist(), "weight": counts[filled].tolist()}
    return made


RANKS: Final = 4096
"""Ranks after this one are counted together."""


def _no_ranks() -> States:
    return {"by_rank": jnp.zeros(RANKS), "candidates": jnp.zeros(2)}


def counted_ranks(state: States, scores: Any, chosen: Any, weights: Any) -> States:
    """Add the weight of rows by rank.

    >>> state = {"by_rank": jnp.zeros(4), "candidates": jnp.zeros(2)}
    >>> scores = jnp.array([[0.9, 0.1, 0.5], [0.2, 0.2, -jnp.inf]])
    >>> state = counted_ranks(state, scores, jnp.array([2, 0]), None)
    >>> state["by_rank"].tolist(), state["candidates"].tolist()  # among equal scores the own item comes last
    ([0.0, 2.0, 0.0, 0.0], [5.0, 2.0])

    Args:
      state: the weights by rank, and the sums of candidates and of rows.
      scores: (rows, candidates); -inf for one that is no candidate.
      chosen: (rows,), the row's own item.
      weights: (rows,); None: 1 each.
    """
    own = jnp.take_along_axis(scores, chosen[:, None], axis=1)
    weights = jnp.ones(len(scores)) if weights is None else weights.astype(jnp.float32)
    weights = jnp.where(jnp.isfinite(own[:, 0]), weights, 0.0)
    ranks = jnp.clip((scores >= own).sum(axis=1), 1, len(state["by_rank"]))
    candidates = weights * (scores > -jnp.inf).sum(axis=1)
    return {
        "by_rank": state["by_rank"] + jnp.zeros_like(state["by_rank"]).at[ranks - 1].add(weights),
        "candidates": state["candidates"] + jnp.stack([candidates.sum(), weights.sum()]),
    }


def _plain_ranks(state: States) -> dict[str, Any] | None:
    """Return the ranks with rows, their weights and the mean number of candidates."""
    weight, (candidates, rows) = np.asarray(state["by_rank"], np.float64), state["candidates"]
    filled = np.flatnonzero(weight)
    if not len(filled):
        return None
    counts = {"rank": (filled + 1).tolist(), "weight": weight[filled].tolist()}
    return {"kind": "ranks", **counts, "candidates": float(candidates / rows)}


KINDS: Final = (
    Kind(_is_binary, _SCORES.init, _counted_scores, _plain_scores),
    Kind(_is_number, _no_numbers, _counted_numbers, _plain_numbers),
    Kind(is_matching, _no_ranks, counted_ranks, _plain_ranks),
)
