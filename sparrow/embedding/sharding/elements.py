"""Ordered features on a mesh: each device has the elements of its own sequences, padded to one number of them."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np

from sparrow.embedding.batches.columns import Ordered
from sparrow.embedding.sharding.layout import Ints
from sparrow.kernels import feed


@dataclasses.dataclass(frozen=True)
class Elements:
    """The elements of one ordered feature, cut into the parts of this process's devices.

    >>> held = Ordered(feed.Column(np.array([7, 8, 9], np.int32)), np.array([0, 2, 2, 3, 3], np.int32), None)
    >>> seen = Elements.of("seen", held, 2)
    >>> seen.most, seen.ordered(3).column.ids.tolist(), seen.offsets.tolist()
    (2, [7, 8, 0, 9, 0, 0], [0, 2, 2, 0, 1, 1])

    Attributes:
      pieces: the ids of each part, and the mask of the ids that are present.
      offsets: the offsets of all parts, one part after the other, each from 0 on.
      size: elements of each part, where that is fixed; None: the largest part of all processes decides.
    """

    pieces: tuple[tuple[Any, Any], ...]
    offsets: Ints
    size: int | None

    @classmethod
    def of(cls, name: str, ordered: Ordered, parts: int) -> Elements:
        """Cut a feature into parts with an equal number of sequences."""
        examples = len(ordered.offsets) - 1
        if examples % parts:
            raise ValueError(
                f"feature '{name}': {examples} examples cannot be split evenly over the {parts} devices that this "
                f"process feeds; give a multiple of {parts}"
            )
        each = examples // parts
        ends = ordered.offsets[:: max(each, 1)] if each else np.zeros(parts + 1, np.int32)
        ids, there = ordered.column.ids, ordered.column.there
        there = np.ones(len(ids), np.bool_) if there is None else there
        pieces = tuple((ids[begin:end], there[begin:end]) for begin, end in itertools.pairwise(ends))
        offsets = [ordered.offsets[i * each : (i + 1) * each + 1] - ends[i] for i in range(parts)]
        size = len(pieces[0][0]) if ordered.is_even else ordered.size
        return cls(pieces, np.concatenate(offsets), None if size is None else max(size, 1))

    @property
    def most(self) -> int:
        """The most elements of a part; at least 1."""
        return max(1, *(len(ids) for ids, _ in self.pieces))

    def ordered(self, size: int) -> Ordered:
        """Return the elements of all parts, each filled up to ``size`` with missing ids."""
        ids = np.zeros((len(self.pieces), size), self.pieces[0][0].dtype)
        there = np.zeros(ids.shape, np.bool_)
        for i, (own, own_there) in enumerate(self.pieces):
            ids[i, : len(own)], there[i, : len(own)] = own, own_there
        return Ordered(feed.Column(ids.reshape(-1), there=there.reshape(-1)), self.offsets, ids.size)
