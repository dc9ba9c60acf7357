"""Softmax cross entropy: one right class among many."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from sparrow import fields
from sparrow.losses import _checks as checks
from sparrow.losses.base import Loss, register_loss
from sparrow.registry import answering


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

    label_smoothing: checks.Scalar = 0.0

    label_kind = "class"
    meaning = "probability of each class"
    is_per_example = True

    def __post_init__(self) -> None:
        fields.number("softmax_cross_entropy: label_smoothing", self.label_smoothing, at_least=0, below=1)

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
