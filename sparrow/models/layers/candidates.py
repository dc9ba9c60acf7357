"""The candidates of an example: one, or several that share a pass over its history."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from sparrow.data import CANDIDATES
from sparrow.models.inputs import Arrays, Group, Inputs, Sequence, SequenceGroup


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
