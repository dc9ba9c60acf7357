"""Ordered features on a mesh: each device has the elements of its own sequences, padded to one number of them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from sparrow.embedding.ordered import Ordered
from sparrow.embedding.packing import Measured

Ints = npt.NDArray[np.int32]


@dataclasses.dataclass(frozen=True)
class Elements:
    """The elements of one ordered feature, cut into the parts of this process's devices.

    >>> seen = Elements.of("seen", Ordered(np.array([7, 8, 9], np.int32), np.array([0, 2, 2, 3, 3], np.int32), None), 2)
    >>> seen.most, seen.ids(3).tolist(), seen.offsets.tolist()
    (2, [7, 8, -1, 9, -1, -1], [0, 2, 2, 0, 1, 1])

    Attributes:
      pieces: the ids of each part.
      offsets: the offsets of all parts, one part after the other, each from 0 on.
      size: elements of each part, where that is fixed; None: the largest part of all processes decides.
    """

    pieces: tuple[Ints, ...]
    offsets: Ints
    size: int | None

    @classmethod
    def of(cls, name: str, ordered: Ordered, parts: int) -> Elements:
        """Cut a feature into parts with as many sequences each."""
        examples = len(ordered.offsets) - 1
        if examples % parts:
            raise ValueError(
                f"feature '{name}': {examples} examples cannot be split evenly over the {parts} devices that this "
                f"process feeds; give a multiple of {parts}"
            )
        each = examples // parts
        ends = ordered.offsets[:: max(each, 1)] if each else np.zeros(parts + 1, np.int32)
        pieces = tuple(ordered.ids[begin:end] for begin, end in itertools.pairwise(ends))
        offsets = [ordered.offsets[i * each : (i + 1) * each + 1] - ends[i] for i in range(parts)]
        size = len(pieces[0]) if ordered.even else ordered.size
        return cls(pieces, np.concatenate(offsets), None if size is None else max(size, 1))

    @property
    def most(self) -> int:
        """The most elements of a part; at least 1."""
        return max(1, *map(len, self.pieces))

    def ids(self, size: int) -> Ints:
        """Return all parts, each filled up to ``size`` with -1."""
        made = np.full((len(self.pieces), size), -1, np.int32)
        for row, piece in zip(made, self.pieces, strict=True):
            row[: len(piece)] = piece
        return made.reshape(-1)


def elements_of(counted: Measured, parts: int) -> dict[str, Elements]:
    """Return the elements of a batch's ordered features."""
    return {name: Elements.of(name, ordered, parts) for name, ordered in counted.ordered.items()}


def with_elements(counted: Measured, elements: Mapping[str, Elements], sizes: Mapping[str, int]) -> Measured:
    """Return a batch with as many elements of each ordered feature in every part."""
    laid = {}
    for name, held in elements.items():
        ids = held.ids(sizes[name])
        laid[name] = Ordered(ids, held.offsets, len(ids))
    return dataclasses.replace(counted, ordered=laid)
