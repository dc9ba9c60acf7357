"""The loss of a number that is predicted directly."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from sparrow.losses import _checks as checks
from sparrow.losses.base import Loss, register_loss
from sparrow.registry import answering


@register_loss("l2")
@dataclasses.dataclass(frozen=True)
class L2(Loss):
    """Squared error, ``(predictions - labels)**2``, one value per example.

    There is no factor one half (``optax.l2_loss`` has one): the mean of the values is the mean squared error.

    Predictions are floating-point, of any shape; labels are numbers of the same shape.

    >>> print(l2(jnp.array([0.5, 3.0]), jnp.array([0, 1])))
    [0.25 4.  ]
    """

    meaning = "value"
    is_per_example = True

    def __call__(self, predictions: ArrayLike, labels: ArrayLike) -> jax.Array:
        """Return one value per prediction, float32."""
        predictions, labels = checks.floating("l2", "predictions", predictions), jnp.asarray(labels)
        checks.shape("l2", "labels", labels, predictions.shape, "that of the predictions")
        return jnp.asarray(optax.squared_error(predictions, labels.astype(predictions.dtype)))

    def prediction(self, output: jax.Array) -> jax.Array:
        """Return the output as it is."""
        return output


@answering
def l2(predictions: ArrayLike, labels: ArrayLike) -> jax.Array:
    """Return one value per prediction: `L2`, which holds the equation."""
    return L2()(predictions, labels)
