"""The candidates of an example: one, or several that share a pass over its history; the rankers that read them."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.data import CANDIDATES
from sparrow.models.inputs import Arrays, Group, Inputs, Sequence, SequenceGroup
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.towers import TaskLogits, TaskTower, task_names


@dataclasses.dataclass(frozen=True)
class Candidates:
    """The features of candidates: sequences with an element for each of several, or single features of one."""

    group: Group | SequenceGroup

    @classmethod
    def of(cls, model: str, inputs: Inputs, group: str) -> Candidates:
        """Return the candidates of a group, which must hold sequences alone or single features alone."""
        if not any(name in inputs.sequences for name in inputs.groups[group]):
            return cls(inputs.group(group))
        found = inputs.sequence_group(group)
        if found.queries.names:
            raise ValueError(
                f"{model}: the group '{group}' must hold sequences alone, one element per candidate, or single "
                f"features alone; move '{found.queries.names[0]}' to the group 'contextual'"
            )
        return cls(found)

    @property
    def are_several(self) -> bool:
        return isinstance(self.group, SequenceGroup)

    @property
    def dim(self) -> int:
        """The number of values of one candidate."""
        return self.group.sequences.dim if isinstance(self.group, SequenceGroup) else self.group.dim

    def __call__(self, acts: Arrays, numbers: Arrays) -> Sequence:
        """``(batch, candidates, dim)``. Of single features, too, an example may hold several: a `Sequence` of each."""
        if isinstance(self.group, SequenceGroup):
            return self.group.sequence(acts, numbers)
        if isinstance({**numbers, **acts}[self.group.names[0]], Sequence):
            return SequenceGroup(self.group.name, self.group, Group(self.group.name, (), ())).sequence(acts, numbers)
        x = self.group.concat(acts, numbers)
        return Sequence(x[:, None], jnp.ones(x.shape[0], jnp.int32))

    def outputs(self, made: dict[str, jax.Array], found: Sequence) -> dict[str, jax.Array]:
        """Return outputs ``(batch * candidates, ...)`` by example, with their number where there may be several.

        Outputs are 0 behind the last candidate of an example.
        """
        if not self.are_several and found.values.shape[1] == 1:
            return made
        shape, mask = found.values.shape[:2], found.mask
        by_example = {task: values.reshape(*shape, *values.shape[1:]) for task, values in made.items()}
        return {
            **{
                task: jnp.where(mask if values.ndim == 2 else mask[..., None], values, 0)
                for task, values in by_example.items()
            },
            CANDIDATES: found.lengths,
        }


class CandidateRanker(nnx.Module):
    """A ranker of the candidates of the group "candidate", for several tasks; a subclass makes the layers before.

    Attributes:
      candidates: the features of the candidates.
      stamps: their times, of the group "candidate_timestamp"; None: they are not read.
      mlp: the layers before the tasks; None: there are none.
    """

    candidate_group: ClassVar[str] = "candidate"

    def _read_candidates(
        self, inputs: Inputs, task_towers: tuple[TaskTower, ...], mlp: MLP | None, *, reads_times: bool
    ) -> None:
        model = type(self).__name__
        self.tasks = task_names(model, task_towers)
        self.candidates = Candidates.of(model, inputs, "candidate")
        self.stamps: Candidates | None = None
        if reads_times:
            if "candidate_timestamp" not in inputs.groups:
                raise ValueError(f"{model} needs the group 'candidate_timestamp', as its options read times")
            self.stamps = Candidates.of(model, inputs, "candidate_timestamp")
            if self.stamps.dim != 1:
                raise ValueError(f"{model}: the group 'candidate_timestamp' must hold one number, the time")
            if self.stamps.are_several != self.candidates.are_several:
                raise ValueError(
                    f"{model}: the groups 'candidate' and 'candidate_timestamp' must both hold sequences, or both "
                    "single features"
                )
        for layers in (mlp, *(tower.mlp for tower in task_towers)):
            if self.candidates.are_several and layers is not None and layers.use_bn:
                raise ValueError(
                    f"{model}: use_bn would count the padding of several candidates; use use_ln, or one candidate an "
                    "example"
                )

    def _make_towers(self, dim: int, task_towers: tuple[TaskTower, ...], mlp: MLP | None, *, rngs: nnx.Rngs) -> None:
        self.mlp = nnx.data(None) if mlp is None else mlp.build(dim, rngs=rngs)
        self.towers = TaskLogits(task_towers, dict.fromkeys(self.tasks, mlp.dim if mlp else dim), rngs=rngs)

    def _times(self, numbers: Arrays) -> jax.Array | None:
        """``(batch, candidates)`` float32: activations of fewer digits do not round the times."""
        return None if self.stamps is None else self.stamps({}, numbers).clean[..., 0].astype(jnp.float32)

    def _outputs(self, y: jax.Array, found: Sequence) -> dict[str, jax.Array]:
        """Map ``(batch * candidates, dim)`` to the logits of each task, as `Candidates.outputs` has them."""
        if self.mlp is not None:
            y = self.mlp(y)
        return self.candidates.outputs(self.towers(dict.fromkeys(self.tasks, y)), found)
