"""Losses of one output with one label: binary and softmax cross entropy, squared error, reconstructions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from sparrow.fields import Bounds
from sparrow.losses import _checks as checks
from sparrow.losses.base import BinaryLoss, Loss, register_loss
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

    label_smoothing: checks.ShareScalar = 0.0
    positive_weight: checks.PositiveScalar = 1.0
    prior: Annotated[checks.Scalar, Bounds(above=0, below=1)] = 0.5

    is_per_example = True

    def __call__(self, logits: ArrayLike, labels: ArrayLike) -> jax.Array:
        logits, labels = _logits_and_labels("binary_cross_entropy", logits, labels)
        logits = self._from_prior(logits)
        smoothed = labels * (1 - self.label_smoothing) + 0.5 * self.label_smoothing
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

    gamma: Annotated[checks.Scalar, Bounds(at_least=0)] = 2.0
    alpha: Annotated[checks.Scalar, Bounds(at_least=0, at_most=1)] = 0.5

    is_per_example = True

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


@register_loss("softmax_cross_entropy")
@dataclasses.dataclass(frozen=True)
class SoftmaxCrossEntropy(Loss):
    """Cross entropy of a softmax over classes, one value per example.

    ::

        log_p = log_softmax(logits)
        value = -(1 - label_smoothing) * log_p[label] - label_smoothing * mean(log_p)

    Logits are floating-point, ``(..., classes)``, before the softmax. Labels are integer classes, ``(...)``; one
    outside ``[0, classes)`` gives NaN, never another class's loss.

    Attributes:
      label_smoothing: the share of the target that is spread evenly over all classes, in [0, 1).

    >>> import numpy as np
    >>> logits = jnp.array([[0.2, 0.4, 0.0], [0.3, 0.5, 0.0]])
    >>> values = softmax_cross_entropy(logits, jnp.array([0, 1]), label_smoothing=0.1)
    >>> print(np.asarray(values).round(4))
    [1.1119 0.9093]

    Reference: Szegedy et al., `Rethinking the Inception Architecture <https://arxiv.org/abs/1512.00567>`_,
    section 7 (label smoothing).
    """

    label_smoothing: checks.ShareScalar = 0.0

    label_kind = "class"
    meaning = "probability of each class"
    is_per_example = True

    def __call__(self, logits: ArrayLike, labels: ArrayLike) -> jax.Array:
        loss = "softmax_cross_entropy"
        logits, labels = checks.floating(loss, "logits", logits), checks.integer(loss, "labels", labels)
        if logits.ndim == 0 or logits.shape[-1] < 2:
            raise ValueError(
                f"{loss}: logits must have shape (..., classes) with two classes or more, got {logits.shape}; "
                "for one logit per example use binary_cross_entropy"
            )
        checks.shape(loss, "labels", labels, logits.shape[:-1], "that of the logits without the classes")
        return cross_entropy(logits, labels, self.label_smoothing)

    def prediction(self, output: jax.Array) -> jax.Array:
        return jax.nn.softmax(output, axis=-1)


@answering
def softmax_cross_entropy(
    logits: ArrayLike, labels: ArrayLike, label_smoothing: checks.Scalar = SoftmaxCrossEntropy.label_smoothing
) -> jax.Array:
    """Return one value per label: `SoftmaxCrossEntropy`, which holds the equation."""
    return SoftmaxCrossEntropy(label_smoothing)(logits, labels)


def cross_entropy(
    logits: jax.Array, labels: jax.Array, label_smoothing: checks.Scalar, where: jax.Array | None = None
) -> jax.Array:
    """Return the equation of `SoftmaxCrossEntropy`, over the classes that take part (``where``; all when None).

    Not written with optax: its loss for integer labels subtracts the label's logit from the log-normalizer, and at
    logits near 1000 that difference has lost four digits; its loss for distributions makes ``0 * -inf`` of a logit
    of ``-inf``. Here the logits are shifted by their maximum first, and the label's entry is picked out.
    """
    log_p = jax.nn.log_softmax(logits, axis=-1, where=where)  # -inf where a class does not take part
    values = -jnp.take_along_axis(log_p, labels[..., None], axis=-1)[..., 0]
    if isinstance(label_smoothing, jax.Array) or label_smoothing != 0:
        uniform = -jnp.mean(log_p, axis=-1, where=where)
        values = (1 - label_smoothing) * values + label_smoothing * uniform
    return jnp.where((labels >= 0) & (labels < logits.shape[-1]), values, jnp.nan)


@register_loss("l2")
@dataclasses.dataclass(frozen=True)
class L2(Loss):
    """Squared error, one value per example.

    ::

        value      = (outputs - (labels - mean) / std)**2
        prediction = mean + std * outputs

    There is no factor one half (``optax.l2_loss`` has one): the mean of the values is the mean squared error, in units
    of ``std**2``. With the mean and the deviation of the labels, a model of any labels starts near the best constant,
    and its outputs are of the size of 1.

    Predictions are floating-point, of any shape; labels are numbers of the same shape.

    >>> print(l2(jnp.array([0.5, 3.0]), jnp.array([0, 1])))
    [0.25 4.  ]
    >>> print(L2(mean=100.0, std=10.0)(jnp.array([0.5, 3.0]), jnp.array([100.0, 110.0])))
    [0.25 4.  ]
    >>> print(L2(mean=100.0, std=10.0).prediction(jnp.array([0.5, 3.0])))
    [105. 130.]

    Attributes:
      mean: the prediction of an output of 0.
      std: the change of the prediction for each 1 of the output, above 0.
    """

    mean: Annotated[checks.Scalar, Bounds()] = 0.0
    std: checks.PositiveScalar = 1.0

    meaning = "value"
    is_per_example = True

    def __call__(self, predictions: ArrayLike, labels: ArrayLike) -> jax.Array:
        predictions, labels = checks.floating("l2", "predictions", predictions), jnp.asarray(labels)
        checks.shape("l2", "labels", labels, predictions.shape, "that of the predictions")
        return jnp.square(predictions - (labels.astype(predictions.dtype) - self.mean) / self.std)

    def prediction(self, output: jax.Array) -> jax.Array:
        return self.mean + self.std * output


@answering
def l2(
    predictions: ArrayLike, labels: ArrayLike, mean: checks.Scalar = L2.mean, std: checks.Scalar = L2.std
) -> jax.Array:
    """Return one value per prediction: `L2`, which holds the equation."""
    return L2(mean, std)(predictions, labels)


@register_loss("reconstruction")
@dataclasses.dataclass(frozen=True)
class Reconstruction(Loss):
    """The distance of a vector to its reconstruction, one value per example; the prediction are its codes.

    ::

        l2:  mean of (x - reconstruction)²      l1:  mean of |x - reconstruction|      cos:  1 - cosine

    It reads the outputs "reconstruction", "target" and "codes" of a model of semantic ids; where there is an output
    "rows", it holds the weight of each value.

    >>> outputs = {"reconstruction": jnp.zeros((2, 2)), "target": jnp.ones((2, 2)), "codes": jnp.array([[1], [2]])}
    >>> print(Reconstruction()(outputs))
    [1. 1.]

    Attributes:
      kind: the distance.
    """

    kind: Literal["l2", "l1", "cos"] = "l2"

    label_kind = "none"
    meaning = "codes"
    outputs = ("reconstruction", "target", "codes")

    def __call__(self, outputs: Mapping[str, Any]) -> jax.Array:
        made, target = self.compared(outputs)
        if self.kind == "cos":
            norms = jnp.maximum(jnp.linalg.norm(made, axis=1) * jnp.linalg.norm(target, axis=1), 1e-8)
            values = 1 - (made * target).sum(axis=1) / norms
        else:
            apart = jnp.abs(made - target)
            values = (apart if self.kind == "l1" else jnp.square(apart)).mean(axis=1)
        return values * outputs["rows"] if "rows" in outputs else values

    def prediction(self, output: Mapping[str, Any]) -> jax.Array:
        codes: jax.Array = output["codes"]
        return codes

    def compared(self, output: Mapping[str, Any]) -> tuple[jax.Array, jax.Array]:
        return output["reconstruction"].astype(jnp.float32), output["target"].astype(jnp.float32)
