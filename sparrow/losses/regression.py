"""The loss of a number that is predicted directly."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from sparrow.losses import _checks as checks


def l2(predictions: ArrayLike, labels: ArrayLike) -> jax.Array:
    """Squared error, ``(predictions - labels)**2``, one value per example.

    There is no factor one half (``optax.l2_loss`` has one): the mean of the values is the mean squared error.

    Args:
      predictions: floating-point, any shape.
      labels: numbers, same shape.

    Returns:
      One value per prediction, float32.

    >>> print(l2(jnp.array([0.5, 3.0]), jnp.array([0, 1])))
    [0.25 4.  ]
    """
    predictions, labels = checks.floating("l2", "predictions", predictions), jnp.asarray(labels)
    checks.shape("l2", "labels", labels, predictions.shape, "that of the predictions")
    return jnp.asarray(optax.squared_error(predictions, labels.astype(predictions.dtype)))
