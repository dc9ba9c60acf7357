"""Losses of a yes-or-no label: binary cross entropy and its focal version."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from sparrow.losses import _checks as checks


def binary_cross_entropy(logits: ArrayLike, labels: ArrayLike, label_smoothing: checks.Scalar = 0.0) -> jax.Array:
    """Binary cross entropy of logits, one value per example.

    ::

        y     = labels * (1 - label_smoothing) + 0.5 * label_smoothing
        value = -y * log(sigmoid(logits)) - (1 - y) * log(1 - sigmoid(logits))

    Args:
      logits: floating-point, any shape, before the sigmoid.
      labels: same shape; 0 and 1, or probabilities in between.
      label_smoothing: how far the labels are moved towards 0.5, in [0, 1).

    Returns:
      One value per entry of ``logits``, float32.

    >>> import numpy as np
    >>> values = binary_cross_entropy(jnp.array([0.2, 0.3]), jnp.array([0, 1]))
    >>> print(np.asarray(values).round(4))
    [0.7981 0.5544]

    Reference: Szegedy et al., `Rethinking the Inception Architecture <https://arxiv.org/abs/1512.00567>`_,
    section 7 (label smoothing).
    """
    loss = "binary_cross_entropy"
    checks.number(loss, "label_smoothing", label_smoothing, 0, 1)
    logits, labels = _logits_and_labels(loss, logits, labels)
    smoothed = labels * (1 - label_smoothing) + 0.5 * label_smoothing
    return jnp.asarray(optax.sigmoid_binary_cross_entropy(logits, smoothed))


def binary_focal(
    logits: ArrayLike, labels: ArrayLike, gamma: checks.Scalar = 2.0, alpha: checks.Scalar = 0.5
) -> jax.Array:
    """Focal loss: binary cross entropy that turns its attention to the examples the model gets wrong.

    ::

        p      = sigmoid(logits)
        weight = alpha * labels * (1 - p)**gamma + (1 - alpha) * (1 - labels) * p**gamma
        value  = stop_gradient(weight) * binary_cross_entropy(logits, labels)

    The weight is a constant to the gradient, as in TorchEasyRec: every example pulls in the direction of its cross
    entropy, only more or less. The paper, and ``optax.sigmoid_focal_loss``, differentiate the weight too.

    Args:
      logits: floating-point, any shape, before the sigmoid.
      labels: same shape; 0 and 1, or probabilities in between.
      gamma: how strongly an easy example is turned down; 0 turns none down.
      alpha: the weight of positives, in [0, 1]; negatives weigh ``1 - alpha``.

    Returns:
      One value per entry of ``logits``, float32.

    >>> import numpy as np
    >>> values = binary_focal(jnp.array([2.0, 2.0]), jnp.array([1, 0]))
    >>> print(np.asarray(values).round(4))
    [0.0009 0.825 ]

    Reference: Lin et al., `Focal Loss for Dense Object Detection <https://arxiv.org/abs/1708.02002>`_.
    """
    loss = "binary_focal"
    checks.number(loss, "gamma", gamma, 0)
    checks.number(loss, "alpha", alpha, 0, 1, "[]")
    logits, labels = _logits_and_labels(loss, logits, labels)
    # 1 - p as sigmoid(-logits): exact where p is so near 1 that the difference would round to 0.
    p, one_minus_p = jax.nn.sigmoid(logits), jax.nn.sigmoid(-logits)
    weight = alpha * labels * one_minus_p**gamma + (1 - alpha) * (1 - labels) * p**gamma
    return jax.lax.stop_gradient(weight) * jnp.asarray(optax.sigmoid_binary_cross_entropy(logits, labels))


def _logits_and_labels(loss: str, logits: ArrayLike, labels: ArrayLike) -> tuple[jax.Array, jax.Array]:
    logits, labels = checks.floating(loss, "logits", logits), jnp.asarray(labels)
    checks.shape(loss, "labels", labels, logits.shape, "that of the logits")
    return logits, labels.astype(logits.dtype)
