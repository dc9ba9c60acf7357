"""From one value per example to one number: the mean, with sample weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from sparrow.losses import _checks as checks
from sparrow.registry import answering


def normalize_weights(weights: ArrayLike) -> jax.Array:
    """Weights with mean 1, ``weights / mean(weights)``; all 0 where the weights add up to 0.

    >>> print(normalize_weights(jnp.array([1.0, 3.0])))
    [0.5 1.5]
    """
    weights = jnp.asarray(weights)
    if not jnp.issubdtype(weights.dtype, jnp.floating):
        weights = weights.astype(jnp.float32)  # masks and counts are weights as well
    weights = checks.floating("normalize_weights", "weights", weights)
    # The mean of no weights at all is 0 / 1; written out, because jnp.mean would make it NaN.
    mean = jnp.sum(weights) / max(weights.size, 1)
    return jnp.where(mean == 0, 0, weights / jnp.where(mean == 0, 1, mean))


@answering
def reduce(values: ArrayLike, weights: ArrayLike | None = None) -> jax.Array:
    """Return the mean of a loss's values, each times its weight.

    ::

        mean(values * weights / mean(weights))

    Only the ratio of the weights matters: twice the weight counts as twice the example, and the scale of the loss (and
    so the learning rate) does not change. With no example, or weights that add up to 0, the result and its gradient
    are 0. Under ``jit`` both means are over the whole batch, on however many devices it lies.

    Args:
      values: one value per example, any shape.
      weights: not negative, same shape; None weighs all alike.

    Returns:
      A scalar, float32.

    >>> print(reduce(jnp.array([1.0, 4.0])), reduce(jnp.array([1.0, 4.0]), weights=jnp.array([2.0, 1.0])))
    2.5 2.0
    """
    values = checks.floating("reduce", "values", values)
    if weights is not None:
        weights = jnp.asarray(weights)
        checks.shape("reduce", "weights", weights, values.shape, "that of the values")
        values = values * normalize_weights(weights.astype(values.dtype))
    return jnp.sum(values) / max(values.size, 1)
