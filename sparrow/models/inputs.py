"""Inputs of a model: features by name, and the groups that the model reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence as Names
from typing import Any

import jax
import jax.numpy as jnp

from sparrow import fields
from sparrow.embedding import Jagged
from sparrow.embedding import Sequence as Sequence
from sparrow.registry import nearest

Arrays = Mapping[str, Any]
"""Features of a batch by name: an array ``(batch, dim)``, or a `Sequence`."""


@dataclasses.dataclass(frozen=True)
class Group:
    """Features that enter a model together, in this order. `Inputs.group` makes it.

    Attributes:
      name: the group's name.
      names: its features.
      dims: the number of values of each feature per example.
    """

    name: str
    names: tuple[str, ...]
    dims: tuple[int, ...]

    @property
    def dim(self) -> int:
        """The length of `concat`."""
        return sum(self.dims)

    def concat(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        """All features side by side, ``(batch, dim)``, in the dtype of the activations."""
        parts = [self._pick(name, dim, acts, numbers) for name, dim in zip(self.names, self.dims, strict=True)]
        dtype = _dtype(acts)
        return jnp.concatenate([part.astype(dtype or part.dtype) for part in parts], axis=1)

    def stack(self, acts: Arrays) -> jax.Array:
        """Features of one dim as vectors, ``(batch, features, dim)``."""
        parts = [self._pick(name, dim, acts, {}) for name, dim in zip(self.names, self.dims, strict=True)]
        # As a concatenation, which costs nothing where the parts lie side by side already; `jnp.stack` would copy each.
        return jnp.concatenate(parts, axis=1).reshape(-1, len(parts), self.dims[0])

    def _pick(self, name: str, dim: int, acts: Arrays, numbers: Arrays) -> jax.Array:
        array = _found(name, acts, numbers)
        if array is None:
            raise ValueError(
                f"group '{self.name}': the batch has no feature '{name}': {nearest(name, [*acts, *numbers])}"
            )
        if isinstance(array, Sequence):
            raise ValueError(
                f"group '{self.name}': feature '{name}' is a sequence in order; give it a pooling, or an encoder"
            )
        if array.ndim != 2 or array.shape[1] != dim:
            raise ValueError(
                f"group '{self.name}': feature '{name}' must have shape (batch, {dim}), as in Inputs, got {array.shape}"
            )
        made: jax.Array = array
        return made


def _found(name: str, acts: Arrays, numbers: Arrays) -> Any:
    """Return the activations or the numbers of a feature, or None."""
    for argument, given in (("acts", acts), ("numbers", numbers)):
        if not isinstance(given, Mapping):
            got = f"an array of shape {given.shape}" if hasattr(given, "shape") else type(given).__name__
            raise TypeError(
                f"{argument} of a model must be a dict of arrays by feature, {{'{name}': array, ...}}, got {got}"
            )
        if name in given:
            return given[name]
    return None


def _dtype(acts: Arrays) -> Any:
    """Return the dtype of the activations; None where there are none.

    Numbers come from the data in float32; next to bfloat16 activations they would make the complete model float32.
    """
    arrays = [array.values if isinstance(array, Sequence) else array for array in acts.values()]
    return jnp.result_type(*arrays) if arrays else None


def side_by_side(parts: Names[Jagged | None]) -> Jagged | None:
    """Return sequences of the same lengths with their elements joined; None where one is missing."""
    there = [part for part in parts if part is not None]
    if len(there) < len(parts):
        return None
    size = min(part.values.shape[0] for part in there)  # each has capacity for all elements
    return Jagged(jnp.concatenate([part.values[:size] for part in there], axis=1), there[0].offsets)


@dataclasses.dataclass(frozen=True)
class SequenceGroup:
    """Sequences of one length, side by side, and the features that attend to them. `Inputs.sequence_group` makes it.

    Attributes:
      name: the group's name.
      sequences: the features in order, one element of each at a time.
      queries: the other features of the group, one vector per example, such as the candidate item; may be empty.
    """

    name: str
    sequences: Group
    queries: Group

    def sequence(self, acts: Arrays, numbers: Arrays) -> Sequence:
        """Return the sequences side by side, ``(batch, length, sequences.dim)``."""
        parts = [
            self._pick(name, dim, acts, numbers)
            for name, dim in zip(self.sequences.names, self.sequences.dims, strict=True)
        ]
        first, dtype = parts[0], _dtype(acts)
        for name, part in zip(self.sequences.names, parts, strict=True):
            if part.values.shape[:2] != first.values.shape[:2]:
                raise ValueError(
                    f"group '{self.name}': the sequences '{self.sequences.names[0]}' and '{name}' must have one "
                    f"length, got {first.values.shape[1]} and {part.values.shape[1]}"
                )
        parts = [jax.tree.map(lambda x: x.astype(dtype or x.dtype) if x.ndim > 1 else x, part) for part in parts]
        values = jnp.concatenate([part.values for part in parts], axis=2)
        return Sequence(values, first.lengths, side_by_side([part.jagged for part in parts]), first.shards)

    def query(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        """Return the other features side by side, ``(batch, queries.dim)``."""
        return self.queries.concat(acts, numbers)

    def _pick(self, name: str, dim: int, acts: Arrays, numbers: Arrays) -> Sequence:
        found = _found(name, acts, numbers)
        if not isinstance(found, Sequence):
            given = "is missing" if found is None else f"is an array of shape {found.shape}"
            raise ValueError(f"group '{self.name}': feature '{name}' must be a Sequence, and {given}")
        if found.values.ndim != 3 or found.values.shape[2] != dim:
            raise ValueError(
                f"group '{self.name}': feature '{name}' must have values of shape (batch, length, {dim}), as in "
                f"Inputs, got {found.values.shape}"
            )
        return found


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The features of a model: how long each is, and which groups they form. A feature may be in several groups.

    >>> inputs = Inputs(acts={"user": 16, "item": 16}, numbers={"age": 1}, groups={"deep": ["user", "item", "age"]})
    >>> inputs.group("deep").dim
    33
    >>> Inputs(acts={"user": 16}, groups={"deep": ["usr"]})
    Traceback (most recent call last):
    ValueError: group 'deep' names the feature 'usr': did you mean 'user'? Valid names: user

    Attributes:
      acts: the embedding dim of each feature that is looked up in a table, by the name of its activation.
      numbers: the number of values of each numeric feature.
      groups: the names of the features in each group; the model defines the groups that it reads.
      sequences: the number of values of one element of each ordered sequence: of its embedding, or as they are. A batch
        holds a `Sequence` for each.
    """

    acts: Mapping[str, int]
    numbers: Mapping[str, int] = dataclasses.field(default_factory=dict)
    groups: Mapping[str, Names[str]] = dataclasses.field(default_factory=dict)
    sequences: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if not isinstance(getattr(self, field.name), Mapping):
                raise ValueError(f"Inputs.{field.name} must be a mapping by name, got {getattr(self, field.name)!r}")
        seen: dict[str, str] = {}
        for kind in ("acts", "numbers", "sequences"):
            for feature, dim in getattr(self, kind).items():
                fields.integer(f"Inputs.{kind}['{feature}']", dim)
                if seen.setdefault(feature, kind) != kind:
                    raise ValueError(
                        f"the feature '{feature}' is in both Inputs.{seen[feature]} and Inputs.{kind}; name it once"
                    )
        for group, names in self.groups.items():
            if isinstance(names, str) or not names:
                raise ValueError(f"group '{group}' must be a list of at least one feature name, got {names!r}")
            for name in names:
                if name not in self._dims:
                    raise ValueError(f"group '{group}' names the feature '{name}': {nearest(str(name), self._dims)}")
            repeated = sorted({name for name in names if list(names).count(name) > 1})
            if repeated:
                raise ValueError(f"group '{group}' names the feature '{repeated[0]}' more than once")
        for kind in ("acts", "numbers", "sequences"):
            object.__setattr__(self, kind, dict(getattr(self, kind)))
        object.__setattr__(self, "groups", {group: tuple(names) for group, names in self.groups.items()})

    def __hash__(self) -> int:  # a model that keeps its Inputs stays usable as a static argument of jit
        return hash(tuple(tuple(getattr(self, field.name).items()) for field in dataclasses.fields(self)))

    @property
    def _dims(self) -> dict[str, int]:
        return {**self.acts, **self.numbers, **self.sequences}

    def check(self, model: str, required: Names[str], optional: Names[str] = ()) -> None:
        """Raise unless the groups are those that ``model`` reads, and every feature is in one of them."""
        known = (*required, *optional)
        for group in self.groups:
            if group not in known:
                raise ValueError(f"{model} reads no group '{group}': {nearest(group, known)}")
        for group in required:
            if group not in self.groups:
                raise ValueError(f"{model} needs the group '{group}'; it has: {', '.join(self.groups) or 'none'}")
        grouped = {name for names in self.groups.values() for name in names}
        for feature in self._dims:
            if feature not in grouped:
                raise ValueError(f"the feature '{feature}' is in no group of {model}; add it to a group or remove it")

    def group(self, name: str) -> Group:
        if name not in self.groups:
            raise ValueError(f"there is no group '{name}': {nearest(name, self.groups)}")
        for feature in self.groups[name]:
            if feature in self.sequences:
                raise ValueError(
                    f"group '{name}' takes single features, but '{feature}' is a sequence in order; give it a pooling, "
                    "or an encoder"
                )
        return self._members(name, self.groups[name])

    def sequence_group(self, name: str) -> SequenceGroup:
        """Return the group ``name``, which must hold a sequence; its other features attend to it.

        >>> inputs = Inputs(acts={"item": 4}, sequences={"clicks": 4}, groups={"history": ["item", "clicks"]})
        >>> group = inputs.sequence_group("history")
        >>> group.sequences.names, group.queries.names
        (('clicks',), ('item',))
        """
        if name not in self.groups:
            raise ValueError(f"there is no group '{name}': {nearest(name, self.groups)}")
        sequences = [feature for feature in self.groups[name] if feature in self.sequences]
        if not sequences:
            raise ValueError(f"group '{name}' needs a sequence in order, and has none: add a sequence without pooling")
        queries = [feature for feature in self.groups[name] if feature not in self.sequences]
        return SequenceGroup(name, self._members(name, sequences), self._members(name, queries))

    def _members(self, group: str, names: Names[str]) -> Group:
        return Group(group, tuple(names), tuple(self._dims[feature] for feature in names))

    def single(self, model: str) -> Group:
        """Return the only group, of any name; raise ValueError unless there is exactly one."""
        if len(self.groups) != 1:
            given = f"{len(self.groups)}: {', '.join(self.groups)}" if self.groups else "none"
            raise ValueError(f"{model} reads one group of features, got {given}")
        self.check(model, required=tuple(self.groups))
        return self.group(next(iter(self.groups)))

    def embedded(self, name: str) -> Group:
        """Return the group ``name``, which must hold looked-up features only."""
        group = self.group(name)
        for feature in group.names:
            if feature in self.numbers:
                raise ValueError(
                    f"group '{name}' takes features with a table, but '{feature}' is a number; "
                    "bucketise it into ids or move it to another group"
                )
        return group

    def vectors(self, name: str, *, beside_numbers: bool = False) -> Group:
        """Return the looked-up features of the group ``name``, which must have one dim.

        A group with numbers is refused, unless ``beside_numbers``: something else reads those.

        >>> inputs = Inputs(acts={"user": 4, "item": 4}, numbers={"age": 1}, groups={"deep": ["user", "age", "item"]})
        >>> inputs.vectors("deep", beside_numbers=True).names
        ('user', 'item')
        """
        group = self.group(name) if beside_numbers else self.embedded(name)
        names = tuple(feature for feature in group.names if feature not in self.numbers)
        if not names:
            raise ValueError(f"group '{name}' needs a feature with a table, and holds numbers only; add one")
        group = Group(name, names, tuple(self.acts[feature] for feature in names))
        first, dim = group.names[0], group.dims[0]
        for feature, other in zip(group.names, group.dims, strict=True):
            if other != dim:
                raise ValueError(
                    f"group '{name}' needs features of one dim, but '{first}' has {dim} and '{feature}' has {other}; "
                    "give all of them the same embedding_dim"
                )
        return group
