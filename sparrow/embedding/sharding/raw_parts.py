"""Raw ids of dynamic tables on a mesh: the owner of an id is a hash of it, so that routing needs no map.

Entries are routed by stand-ins: rows of a layout that has the owner of the id, and the number of the entry as the local
row. Once they are laid out, the raw ids take the places of the entries' numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.embedding.sharding.layout import Layout
from sparrow.embedding.sharding.parts import Part
from sparrow.kernels.ids import numbers_of, part_of_numpy

STAND_INS: Final = 2**31 - 2**28


class Raw(NamedTuple):
    """The raw ids of one device's entries.

    Attributes:
      words: (N, 2) uint32, lower and upper halves.
      segments: (N,) int32, the number of each id's table in the stack; -1 where there is no id.
    """

    words: npt.NDArray[np.uint32]
    segments: npt.NDArray[np.int32]

    def at(self, numbers: npt.NDArray[np.int32]) -> tuple[Any, npt.NDArray[np.uint32]]:
        """Return the segments and words of entries by their numbers; -1 and 0 past the last one."""
        there = numbers.view(np.uint32) < len(self.segments)
        at = np.where(there, numbers, 0)
        if not len(self.segments):
            return np.full(len(numbers), -1, np.int32), np.zeros((len(numbers), 2), np.uint32)
        segments = np.where(there, self.segments[at], np.int32(-1))
        return segments, np.where(there[:, None], self.words[at], np.uint32(0))


def stand_in_layout(shards: int) -> Layout:
    """Return the layout of stand-ins."""
    return Layout(STAND_INS, shards, (0,))


def with_stand_ins(
    layout: Layout, parts: Sequence[Part], segments: npt.NDArray[np.int32], words: npt.NDArray[np.uint32]
) -> tuple[list[Part], list[Raw]]:
    """Return the parts of lookups whose ids are numbers of entries with stand-ins instead, and the raw ids of each."""
    made, raw = [], []
    for part in parts:
        own = Raw(words[part.ids], segments[part.ids])
        owners = part_of_numpy(numbers_of(own.words), layout.shards)
        stand_ins = layout.logical(owners, np.arange(len(part.ids), dtype=np.int32))
        ids = np.where(own.segments >= 0, stand_ins, STAND_INS).astype(np.int32)
        made.append(part._replace(ids=ids))
        raw.append(own)
    return made, raw


def with_words(lookups: Any, raw: Sequence[Raw]) -> tuple[Any, npt.NDArray[np.uint32]]:
    """Return the lookups with segments instead of numbers of entries, and the words, (..., entries, 2)."""
    numbers = lookups.wanted
    each = len(numbers) // len(raw)
    segments, words = np.empty_like(numbers), np.empty((*numbers.shape, 2), np.uint32)
    for i, own in enumerate(raw):
        at = slice(i * each, (i + 1) * each)
        found, of_entries = own.at(np.ascontiguousarray(numbers[at]).reshape(-1))
        segments[at], words[at] = found.reshape(numbers[at].shape), of_entries.reshape(*numbers[at].shape, 2)
    return lookups.with_wanted(segments), words
