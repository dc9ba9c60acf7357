"""`Gradients` of a Flax model: of its parameters and of the tables of all its layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from sparrow.embedding.embedder import Embedder
from sparrow.embedding.packed_batch import PackedBatch
from sparrow.embedding.row_grads import RowGrads, clip_factor


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Gradients:
    """The gradients of a model. ``a + b`` accumulates micro-batches: one update with it touches each row once.

    Attributes:
      dense: the gradients of the parameters.
      rows: the row gradients of each layer with tables, by the layer's path in the model.
      embedders: the Embedder of each of these layers.
    """

    dense: Any
    rows: dict[str, RowGrads]
    embedders: tuple[tuple[str, Embedder], ...] = dataclasses.field(metadata={"static": True})

    def __add__(self, other: Gradients) -> Gradients:
        if not isinstance(other, Gradients):
            return NotImplemented
        rows = dict(self.rows)
        for path, grads in other.rows.items():
            rows[path] = rows[path] + grads if path in rows else grads
        embedders = tuple({**dict(self.embedders), **dict(other.embedders)}.items())
        return Gradients(jax.tree.map(jnp.add, self.dense, other.dense), rows, embedders)

    def scale(self, factor: jax.Array | float) -> Gradients:
        """Every gradient times ``factor``."""
        dense = jax.tree.map(lambda g: g * factor, self.dense)
        rows = {path: grads.scale(factor) for path, grads in self.rows.items()}
        return dataclasses.replace(self, dense=dense, rows=rows)

    def global_norm(self) -> jax.Array:
        """Return the Euclidean norm over parameters and rows together, each row's entries summed first."""
        squares = [jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(self.dense)]
        squares += [jnp.square(grads.global_norm()) for grads in self.rows.values()]
        return jnp.sqrt(jnp.array(squares).sum())

    def clip(self, limit: float) -> Gradients:
        """Return the gradients, scaled down where their norm is above ``limit``."""
        return self.scale(clip_factor(self.global_norm(), limit))

    def all_finite(self) -> jax.Array:
        """Whether every gradient is finite."""
        leaves = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(self.dense)]
        return jnp.array([*leaves, *(grads.all_finite() for grads in self.rows.values())]).all()


def sum_calls(embedder: Embedder, batches: Sequence[PackedBatch], act_grads: Sequence[Any]) -> RowGrads:
    """Return the row gradients of a layer over all its calls in one step."""
    first, *others = map(embedder.row_grads, batches, act_grads)
    return sum(others, start=first)


def check(opt_state: Any, clip_global_norm: float | None) -> None:
    """Raise ValueError where an optax state is of a transformation that accumulates, or the limit is not above 0."""

    def accumulates(node: Any) -> bool:
        return isinstance(node, optax.MultiStepsState)

    if any(map(accumulates, jax.tree.leaves(opt_state, is_leaf=accumulates))):
        raise ValueError(
            "tx accumulates (optax.MultiSteps, or dense.build with accumulate), which would leave the tables out; add "
            "the gradients of the micro-batches instead and update once"
        )
    if clip_global_norm is not None and not clip_global_norm > 0:
        raise ValueError(f"clip_global_norm must be above 0 or None, got {clip_global_norm!r}")
