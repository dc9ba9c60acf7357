"""The rank of each row's own item among the candidates of its batch, counted: for the charts of two towers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.tasks.predictions import is_matching, judged
from sparrow.tasks.sample_weights import sample_weights
from sparrow.tasks.task import Arrays, Task

States = dict[str, Any]

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
