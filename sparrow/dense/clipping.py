"""Clipping of gradients by their global norm, computed here or handed in from outside."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from sparrow.embedding import clip_factor


def global_norm(tree: Any) -> jax.Array:
    """Return the Euclidean norm of all leaves together, summed in float32 at least.

    >>> float(global_norm({"a": jnp.array([3.0]), "b": jnp.array([4.0])}))
    5.0
    """
    return jnp.sqrt(squared_norm(tree))


def squared_norm(tree: Any) -> jax.Array:
    """Return the square of `global_norm`: squared norms of the parts of a tree add up to that of the whole."""
    wide = [leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)) for leaf in jax.tree.leaves(tree)]
    return sum((jnp.sum(jnp.square(leaf)) for leaf in wide), start=jnp.zeros(()))


def norm_of(tree: Any, norm_type: float = 2.0) -> jax.Array:
    """Return the norm of all leaves together: ``(sum |x|**p) ** (1 / p)``, the largest ``|x|`` for infinity.

    >>> tree = {"a": jnp.array([3.0]), "b": jnp.array([-4.0])}
    >>> [float(norm_of(tree, p)) for p in (1, 2, float("inf"))]
    [7.0, 5.0, 4.0]
    """
    if norm_type == 2.0:
        return global_norm(tree)
    wide = [jnp.abs(leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))) for leaf in jax.tree.leaves(tree)]
    if math.isinf(norm_type):
        return functools.reduce(jnp.maximum, (jnp.max(leaf, initial=0.0) for leaf in wide), jnp.zeros(()))
    powers: jax.Array = sum((jnp.sum(leaf**norm_type) for leaf in wide), start=jnp.zeros(()))
    return powers ** (1 / norm_type)


def clip_by_global_norm(
    max_norm: jax.typing.ArrayLike, norm_type: float = 2.0
) -> optax.GradientTransformationExtraArgs:
    """Return ``updates * min(1, max_norm / norm)``, where ``norm`` is the norm of all updates together.

    When the updates are one share of a larger whole (one pipeline stage, or the dense parameters next to tables)
    the caller hands in the norm of the whole: ``tx.update(..., global_norm=norm)``. As in optax, nothing is added to
    the norm (PyTorch adds 1e-6). A NaN anywhere makes every update NaN; an infinity makes its own NaN and the others 0.
    ``norm_type`` is PyTorch's: 2, another number of at least 1, or infinity.

    >>> clip = clip_by_global_norm(1.0)
    >>> gradients = jnp.array([3.0, 4.0])
    >>> clip.update(gradients, clip.init(gradients))[0]
    Array([0.6, 0.8], dtype=float32)
    >>> clip.update(gradients, clip.init(gradients), global_norm=10.0)[0]
    Array([0.3, 0.4], dtype=float32)

    Pascanu et al., On the difficulty of training Recurrent Neural Networks, https://arxiv.org/abs/1211.5063
    """

    def update(
        updates: Any, state: Any, params: Any = None, *, global_norm: Any = None, **extra_args: Any
    ) -> tuple[Any, Any]:
        del params, extra_args
        norm = norm_of(updates, norm_type) if global_norm is None else jnp.asarray(global_norm, jnp.float32)
        factor = clip_factor(norm, max_norm)
        return jax.tree.map(lambda update: (update * factor).astype(update.dtype), updates), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)
