"""One training step as one compiled program: gradients of all micro-batches, the update, the metrics."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sparrow.runs.feed import Feed
from sparrow.runs.program import Program, TrainState


class Report(NamedTuple):
    """What a step tells about itself: scalars on the device, fetched only when they are shown.

    Attributes:
      loss: the total.
      terms: its part of each task.
      gradient_norm: of tables and dense parameters together, or None.
      gradient_norms: of each dense parameter by its path; empty unless asked for.
      gradients: of each dense parameter by its path; empty unless asked for.
    """

    loss: jax.Array
    terms: dict[str, jax.Array]
    gradient_norm: jax.Array | None
    gradient_norms: dict[str, jax.Array]
    gradients: dict[str, jax.Array]


TrainStep = Callable[[TrainState, tuple[Feed, ...]], tuple[TrainState, Report]]


def train_step(program: Program) -> TrainStep:
    """The compiled step. It takes the micro-batches of one optimizer step; the state is donated.

    Micro-batches may differ in size: each counts by its examples, as in one batch of them all.
    """
    optimizer, summaries = program.optimizer, program.config.train.summaries

    def step(state: TrainState, feeds: tuple[Feed, ...]) -> tuple[TrainState, Report]:
        total = sum(feed.size for feed in feeds)
        rest, metrics = state.rest, state.metrics
        grads: list[Any] = []
        terms: list[Any] = []
        for feed in feeds:
            share = feed.size / total
            of_feed, (of_tasks, outputs, rest) = optimizer.gradients(
                state.optimizer, program.loss, feed.packed, rest, feed, has_aux=True, weight=share
            )
            grads.append(of_feed)
            terms.append({task: share * term for task, term in of_tasks.items()})
            metrics = program.train_scores.update(metrics, outputs, feed.columns)
        gradients = functools.reduce(operator.add, grads)
        new, info = optimizer.apply(state.optimizer, gradients, grad_norm="global_gradient_norm" in summaries)
        if optimizer.skip_nonfinite:
            rest = jax.tree.map(lambda old, new: jnp.where(info.applied, new, old), state.rest, rest)
        dense = by_path(gradients.dense)
        norms = {path: jnp.linalg.norm(x) for path, x in dense.items()} if "gradient_norm" in summaries else {}
        kept = dense if "gradient" in summaries else {}
        return TrainState(new, rest, metrics), Report(info.loss, _sum(terms), info.grad_norm, norms, kept)

    compiled: TrainStep = jax.jit(step, donate_argnums=0)
    return compiled


def _sum(terms: Sequence[dict[str, jax.Array]]) -> dict[str, jax.Array]:
    return {task: functools.reduce(operator.add, (part[task] for part in terms)) for task in terms[0]}


def by_path(dense: Any) -> dict[str, jax.Array]:
    """The leaves of dense parameters, or of their gradients, by paths such as ``deep/layers/0/linear/kernel``."""
    leaves = jax.tree_util.tree_leaves_with_path(dense)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
