"""The loss of vectors that a model codes and reads back from their codes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp

from sparrow import fields
from sparrow.losses.base import Loss, register_loss


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
        """Return one value per example, float32."""
        made, target = self.compared(outputs)
        if self.kind == "cos":
            norms = jnp.maximum(jnp.linalg.norm(made, axis=1) * jnp.linalg.norm(target, axis=1), 1e-8)
            values = 1 - (made * target).sum(axis=1) / norms
        else:
            apart = jnp.abs(made - target)
            values = (apart if self.kind == "l1" else jnp.square(apart)).mean(axis=1)
        return values * outputs["rows"] if "rows" in outputs else values

    def prediction(self, output: Mapping[str, Any]) -> jax.Array:
        """Return the codes, ``(batch, layers)``."""
        codes: jax.Array = output["codes"]
        return codes

    def compared(self, output: Mapping[str, Any]) -> tuple[jax.Array, jax.Array]:
        """Return the reconstructions and the vectors."""
        return output["reconstruction"].astype(jnp.float32), output["target"].astype(jnp.float32)
