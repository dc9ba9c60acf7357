"""Losses of a yes-or-no label: binary cross entropy and its focal version."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from sparrow import fields
from sparrow.losses import _checks as checks
from sparrow.losses.base import BinaryLoss, register_loss
from sparrow.registry import answering


@register_loss("binary_cross_entropy")
@dataclasses.dataclass(frozen=True)
class BinaryCrossEntropy(BinaryLoss):
    """Binary cross entropy of logits, one value per example.

    ::

        y     = labels * (1 - label_smoothing) + 0.5 * label_smoothing
        p     = sigmoid(logits + log(prior / (1 - prior)))
        value = -positive_weight * y * log(p) - (1 - y) * log(1 - p)

    Logits are floating-point, of any shape, before the sigmoid; labels have the same shape, and are 0, 1 or
    probabilities. Their values are not looked at, because entries of weight 0 may hold anything; a run checks the
    labels that count where it reads them.

    Attributes:
      label_smoothing: how far the labels are moved towards 0.5, in [0, 1).
      positive_weight: the weight of positives, above 0; negatives weigh 1. Predictions grow with it: their odds are
        about ``positive_weight`` times the true ones.
      prior: the prediction for a logit of 0, above 0 and below 1. With the share of positives, a model starts near it,
        and the weights of ids need not learn it first.

    >>> import numpy as np
    >>> values = binary_cross_entropy(jnp.array([0.2, 0.3]), jnp.array([0, 1]))
    >>> print(np.asarray(values).round(4))
    [0.7981 0.5544]
    >>> print(np.asarray(binary_cross_entropy(jnp.array([0.2, 0.3]), jnp.array([0, 1]), positive_weight=10.0)).round(4))
    [0.7981 5.5436]
    >>> print(np.asarray(BinaryCrossEntropy(prior=0.02).prediction(jnp.array([0.0, 1.0]))).round(4))
    [0.02   0.0526]

    Reference: Szegedy et al., `Rethinking the Inception Architecture <https://arxiv.org/abs/1512.00567>`_,
    section 7 (label smoothing).
    """

    label_smoothing: checks.Scalar = 0.0
    positive_weight: checks.Scalar = 1.0
    prior: checks.Scalar = 0.5

    is_per_example = True

    def __post_init__(self) -> None:
        fields.number("binary_cross_entropy: label_smoothing", self.label_smoothing, at_least=0, below=1)
        fields.number("binary_cross_entropy: positive_weight", self.positive_weight, above=0)
        fields.number("binary_cross_entropy: prior", self.prior, above=0, below=1)

    def __call__(self, logits: ArrayLike, labels: ArrayLike) -> jax.Array:
        logits, labels = _logits_and_labels("binary_cross_entropy", logits, labels)
        logits = self._from_prior(logits)
        smoothed = labels * (1 - self.label_smoothing) + 0.5 * self.label_smoothing
        if isinstance(self.positive_weight, float | int) and self.positive_weight == 1:
            return jnp.asarray(optax.sigmoid_binary_cross_entropy(logits, smoothed))
        yes, no = jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)
        return -self.positive_weight * smoothed * yes - (1 - smoothed) * no

    def prediction(self, output: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(self._from_prior(output))

    def _from_prior(self, logits: jax.Array) -> jax.Array:
        if isinstance(self.prior, float | int) and self.prior == 0.5:
            return logits
        return logits + jnp.log(self.prior / (1 - self.prior))


@answering
def binary_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    label_smoothing: checks.Scalar = BinaryCrossEntropy.label_smoothing,
    positive_weight: checks.Scalar = BinaryCrossEntropy.positive_weight,
    prior: checks.Scalar = BinaryCrossEntropy.prior,
) -> jax.Array:
    """Return one value per entry of ``logits``: `BinaryCrossEntropy`, which holds the equation."""
    return BinaryCrossEntropy(label_smoothing, positive_weight, prior)(logits, labels)


@register_loss("binary_focal")
@dataclasses.dataclass(frozen=True)
class BinaryFocal(BinaryLoss):
    """Focal loss: binary cross entropy that turns its attention to the examples the model gets wrong.

    ::

        p      = sigmoid(logits)
        weight = alpha * labels * (1 - p)**gamma + (1 - alpha) * (1 - labels) * p**gamma
        value  = stop_gradient(weight) * binary_cross_entropy(logits, labels)

    The weight is a constant to the gradient, as in TorchEasyRec: every example pulls in the direction of its cross
    entropy, only more or less. The paper, and ``optax.sigmoid_focal_loss``, differentiate the weight too.

    Logits are floating-point, of any shape, before the sigmoid; labels have the same shape.

    Attributes:
      gamma: how strongly an easy example is turned down; 0 turns none down.
      alpha: the weight of positives, in [0, 1]; negatives weigh ``1 - alpha``.

    >>> import numpy as np
    >>> values = binary_focal(jnp.array([2.0, 2.0]), jnp.array([1, 0]))
    >>> print(np.asarray(values).round(4))
    [0.0009 0.825 ]

    Reference: Lin et al., `Focal Loss for Dense Object Detection <https://arxiv.org/abs/1708.02002>`_.
    """

    gamma: checks.Scalar = 2.0
    alpha: checks.Scalar = 0.5

    is_per_example = True

    def __post_init__(self) -> None:
        fields.number("binary_focal: gamma", self.gamma, at_least=0)
        fields.number("binary_focal: alpha", self.alpha, at_least=0, at_most=1)

    def __call__(self, logits: ArrayLike, labels: ArrayLike) -> jax.Array:
        logits, labels = _logits_and_labels("binary_focal", logits, labels)
        gamma, alpha = self.gamma, self.alpha
        # 1 - p as sigmoid(-logits): exact where p is so near 1 that the difference would round to 0.
        p, one_minus_p = jax.nn.sigmoid(logits), jax.nn.sigmoid(-logits)
        weight = alpha * labels * one_minus_p**gamma + (1 - alpha) * (1 - labels) * p**gamma
        return jax.lax.stop_gradient(weight) * jnp.asarray(optax.sigmoid_binary_cross_entropy(logits, labels))


@answering
def binary_focal(
    logits: ArrayLike,
    labels: ArrayLike,
    gamma: checks.Scalar = BinaryFocal.gamma,
    alpha: checks.Scalar = BinaryFocal.alpha,
) -> jax.Array:
    """Return one value per entry of ``logits``: `BinaryFocal`, which holds the equation."""
    return BinaryFocal(gamma, alpha)(logits, labels)


def _logits_and_labels(loss: str, logits: ArrayLike, labels: ArrayLike) -> tuple[jax.Array, jax.Array]:
    logits, labels = checks.floating(loss, "logits", logits), jnp.asarray(labels)
    checks.shape(loss, "labels", labels, logits.shape, "that of the logits")
    return logits, labels.astype(logits.dtype)
