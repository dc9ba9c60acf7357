"""Parts that several models share: towers over a group of features, and the layer that gives the logits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP, optional_layers


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
      num_classes: the number of logits of an example; 1 for a yes-or-no label or a number.
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
        self.mlp, self.dim = optional_layers(tower.mlp, self.group.dim, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        return self.mlp(self.group.concat(acts, numbers))


class Logits(nnx.Module):
    """Optional layers, then a linear one: ``(batch,)`` for one class, ``(batch, num_classes)`` for more. float32.

    >>> Logits(3, None, rngs=nnx.Rngs(0))(jnp.ones((2, 3), jnp.bfloat16)).shape
    (2,)
    """

    def __init__(self, dim: int, mlp: MLP | None, num_classes: int = 1, *, rngs: nnx.Rngs) -> None:
        fields.integer("num_classes", num_classes)
        self.num_classes = num_classes
        self.mlp, width = optional_layers(mlp, dim, rngs=rngs)
        self.linear = nnx.Linear(width, num_classes, rngs=rngs)

    def __call__(self, *parts: jax.Array) -> jax.Array:
        """Map arrays, ``dim`` wide together, to the logits."""
        x = parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1)
        y = self.linear(self.mlp(x)).astype(jnp.float32)
        return y[:, 0] if self.num_classes == 1 else y


def task_names(model: str, towers: Sequence[TaskTower]) -> tuple[str, ...]:
    """Return the names of the tasks; raise ValueError unless each tower has a task of its own."""
    tasks = tuple(tower.task for tower in towers)
    if not tasks or len(set(tasks)) < len(tasks):
        raise ValueError(f"{model}.task_towers must be at least one tower, each for its own task, got {list(tasks)}")
    return tasks


class TaskLogits(nnx.Module):
    """The logits of each task, from an input of its own.

    >>> towers = TaskLogits([TaskTower("click"), TaskTower("kind", num_classes=3)], {"click": 4, "kind": 2},
    ...                     rngs=nnx.Rngs(0))
    >>> outputs = towers({"click": jnp.ones((5, 4)), "kind": jnp.ones((5, 2))})
    >>> {task: array.shape for task, array in outputs.items()}
    {'click': (5,), 'kind': (5, 3)}
    """

    def __init__(self, towers: Sequence[TaskTower], dims: Mapping[str, int], *, rngs: nnx.Rngs) -> None:
        self.tasks = nnx.Dict(
            {tower.task: Logits(dims[tower.task], tower.mlp, tower.num_classes, rngs=rngs) for tower in towers}
        )

    def __call__(self, inputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        return {task: logits(inputs[task]) for task, logits in self.tasks.items()}
