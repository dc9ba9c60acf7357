"""Parts that several models share: towers over a group of features, and the layer that gives the logits."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.mlp import MLP


@dataclasses.dataclass(frozen=True)
class Tower:
    """Layers over one group of features.

    Attributes:
      input: the name of the group.
      mlp: the layers; None takes the features as they are.
    """

    input: str
    mlp: MLP | None = None


@dataclasses.dataclass(frozen=True)
class TaskTower:
    """The layers of one task, on top of what the tasks share.

    Attributes:
      task: the task's name, and the name of the output.
      mlp: the layers before the logits; None for none.
      num_classes: how many logits an example has; 1 for a yes-or-no label or a number.
    """

    task: str
    mlp: MLP | None = None
    num_classes: int = 1

    def __post_init__(self) -> None:
        fields.integer(f"TaskTower '{self.task}': num_classes", self.num_classes)


class GroupTower(nnx.Module):
    """The layers that a `Tower` describes."""

    def __init__(self, tower: Tower, inputs: Inputs, *, rngs: nnx.Rngs) -> None:
        self.group: Group = inputs.group(tower.input)
        self.dim = self.group.dim if tower.mlp is None else tower.mlp.dim
        self.mlp = nnx.data(None) if tower.mlp is None else tower.mlp.build(self.group.dim, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        """The group's features to ``(batch, dim)``."""
        x = self.group.concat(acts, numbers)
        return x if self.mlp is None else self.mlp(x)


class Logits(nnx.Module):
    """Optional layers, then a linear one: ``(batch,)`` for one class, ``(batch, num_classes)`` for more. float32.

    >>> Logits(3, None, rngs=nnx.Rngs(0))(jnp.ones((2, 3), jnp.bfloat16)).shape
    (2,)
    """

    def __init__(self, dim: int, mlp: MLP | None, num_classes: int = 1, *, rngs: nnx.Rngs) -> None:
        self.num_classes = num_classes
        self.mlp = nnx.data(None) if mlp is None else mlp.build(dim, rngs=rngs)
        self.linear = nnx.Linear(dim if mlp is None else mlp.dim, num_classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """``(batch, dim)`` to logits."""
        y = self.linear(x if self.mlp is None else self.mlp(x)).astype(jnp.float32)
        return y[:, 0] if self.num_classes == 1 else y
