"""Losses of a number that is predicted directly, and of vectors that a model codes and reads back from their codes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from sparrow import fields
from sparrow.losses import _checks as checks
from sparrow.losses.base import Loss, register_loss
from sparrow.registry import answering


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

    mean: checks.Scalar = 0.0
    std: checks.Scalar = 1.0

    meaning = "value"
    is_per_example = True

    def __post_init__(self) -> None:
        fields.number("l2: mean", self.mean)
        fields.number("l2: std", self.std, above=0)

    def __call__(self, predictions: ArrayLike, labels: ArrayLike) -> jax.Array:
        predictions, labels = checks.floating("l2", "predictions", predictions), jnp.asarray(labels)
        checks.shape("l2", "labels", labels, predictions.shape, "that of the predictions")
        labels = labels.astype(predictions.dtype)
        if not self._is_plain:
            labels = (labels - self.mean) / self.std
        return jnp.asarray(optax.squared_error(predictions, labels))

    def prediction(self, output: jax.Array) -> jax.Array:
        return output if self._is_plain else self.mean + self.std * output

    @property
    def _is_plain(self) -> bool:
        """Whether outputs are predictions."""
        return all(isinstance(number, float | int) for number in (self.mean, self.std)) and (
            (self.mean, self.std) == (0.0, 1.0)
        )


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

    def __post_init__(self) -> None:
        fields.choice("reconstruction: kind", self.kind, ("l2", "l1", "cos"))

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
