"""Ordered features in a packed batch: each element is a bag of one entry, and the batch keeps where sequences end."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.embedding.inputs import to_bags
from sparrow.embedding.sizes import within
from sparrow.embedding.specs import FeatureSpec


@dataclasses.dataclass(frozen=True)
class Ordered:
    """The elements of one ordered feature.

    Attributes:
      ids: (N,) int32; -1 for an id to ignore, whose row is zeros.
      offsets: (batch + 1,) int32, where each sequence begins and ends.
      size: rows of the activations, where that is fixed; None: it follows the batch.
      even: whether all sequences have one length, which fixes the size.
    """

    ids: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int32]
    size: int | None
    even: bool = False

    def padded(self, size: int) -> npt.NDArray[np.int32]:
        """(size,) the ids, then -1."""
        if size == len(self.ids):
            return self.ids
        ids = np.full(size, -1, np.int32)
        ids[: len(self.ids)] = self.ids
        return ids


def read_ordered(feature: FeatureSpec, given: Any, capacity: int | None) -> Ordered:
    """Check the input of one ordered feature."""
    bags = to_bags(dataclasses.replace(feature, combiner="sum"), given)
    if bags.gains is not None:
        raise ValueError(
            f"feature '{feature.name}' keeps its rows in order (combiner=None) and takes no weights; "
            "multiply the activations instead"
        )
    ids = bags.ids if bags.valid is None else np.where(bags.valid, bags.ids, np.int32(-1))
    lengths = np.ones(len(ids), np.int32) if bags.lengths is None else bags.lengths
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    if capacity is not None:
        return Ordered(ids, offsets, within(feature.name, len(ids), capacity))
    return Ordered(ids, offsets, len(ids) if bags.steady else None, bags.steady)


def room_name(feature: str) -> str:
    """Return the name of an ordered feature's size among the sizes of stacks.

    >>> room_name("seen")
    'rows of seen'
    """
    return f"rows of {feature}"


def loose(ordered: Mapping[str, Ordered]) -> dict[str, int]:
    """Return the elements of each feature whose number may differ from batch to batch, by `room_name`."""
    return {room_name(name): len(held.ids) for name, held in ordered.items() if held.size is None}


def padded(ordered: Mapping[str, Ordered], room: Mapping[str, int]) -> dict[str, npt.NDArray[np.int32]]:
    """Return the ids of each feature, with room for as many as ``room`` or its own size has."""
    made: dict[Any, npt.NDArray[np.int32]] = {}  # features with the same ids go on sharing them
    result = {}
    for name, held in ordered.items():
        alike = id(held), room.get(room_name(name), 0) if held.size is None else held.size
        if alike not in made:
            made[alike] = held.padded(alike[1])
        result[name] = made[alike]
    return result


def as_single(features: Sequence[FeatureSpec]) -> list[FeatureSpec]:
    """Return the features, ordered ones as features of one id per bag; -1 means no id."""
    return [
        dataclasses.replace(feature, combiner="sum", invalid_ids="ignore") if feature.is_ordered else feature
        for feature in features
    ]
