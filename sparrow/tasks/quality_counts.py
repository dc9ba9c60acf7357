"""`QualityCounts`: the data of the charts of an evaluation, whatever the tasks predict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.metrics import AUC
from sparrow.tasks.candidates import by_candidate
from sparrow.tasks.predictions import is_matching, judged, predicted
from sparrow.tasks.task import Arrays, Task, sample_weights
from sparrow.tasks.value_counts import ValueCounts

States = dict[str, Any]


class QualityCounts:
    """Counts of fixed size for each task: of probabilities, numbers, or ranks. Other tasks have none."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = tasks
        self._parts: dict[str, Any] = {
            "scores": ScoreHistograms(tasks),
            "values": ValueCounts(tasks),
            "ranks": RankCounts(tasks),
        }

    def init(self) -> States:
        """Nothing counted."""
        return {name: part.init() for name, part in self._parts.items()}

    def update(self, states: States, outputs: Arrays, columns: Arrays) -> States:
        """Return the states with one more batch; runs inside jitted functions."""
        outputs, columns = by_candidate(self._tasks, outputs, columns)
        return {name: part.update(states[name], outputs, columns) for name, part in self._parts.items()}

    def plain(self, states: States) -> dict[str, Any]:
        """Return the counts by task, for JSON."""
        made: dict[str, Any] = {}
        for name, part in self._parts.items():
            made |= part.plain(states[name])
        return made


MOST: Final = 4096
"""Ranks after this one are counted together."""


class RankCounts:
    """The weight of rows by rank. States travel through jitted functions."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = {name: task for name, task in tasks.items() if is_matching(task)}

    def init(self) -> States:
        """Nothing counted."""
        return {name: {"by_rank": jnp.zeros(MOST), "candidates": jnp.zeros(2)} for name in self._tasks}

    def update(self, states: States, outputs: Arrays, columns: Arrays) -> States:
        """Return the states with one more batch; runs inside jitted functions."""
        new = {}
        for name, task in self._tasks.items():
            weights = sample_weights(task, columns)
            new[name] = counted(states[name], *judged(name, task, outputs, columns), weights)
        return new

    def plain(self, states: States) -> dict[str, Any]:
        """Return, by task, the ranks with rows, their weights and the mean number of candidates, for JSON."""
        made = {}
        for name, state in jax.device_get(states).items():
            weight, (candidates, rows) = np.asarray(state["by_rank"], np.float64), state["candidates"]
            filled = np.flatnonzero(weight)
            if len(filled):
                made[name] = {
                    "kind": "ranks",
                    "rank": (filled + 1).tolist(),
                    "weight": weight[filled].tolist(),
                    "candidates": float(candidates / rows),
                }
        return made


def counted(state: States, scores: Any, chosen: Any, weights: Any = None) -> States:
    """Return a state with one more batch.

    >>> state = {"by_rank": jnp.zeros(4), "candidates": jnp.zeros(2)}
    >>> state = counted(state, jnp.array([[0.9, 0.1, 0.5], [0.2, 0.2, -jnp.inf]]), jnp.array([2, 0]))
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
