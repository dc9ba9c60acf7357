"""`Part`: the entries of one stack that one device feeds, cut from the lookups of a process's batch.

Raw ids of dynamic tables need no map to be routed: the owner of an id is a hash of it. Their entries are routed by
stand-ins: rows of a layout that has the owner of the id, and the number of the entry as the local row. Once they are
laid out, the raw ids take the places of the entries' numbers.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.embedding.batches.columns import Ordered
from sparrow.embedding.packed_batch import Group
from sparrow.embedding.sharding.layout import Ints, Layout
from sparrow.kernels import Lookups, feed
from sparrow.kernels.ids import numbers_of, part_of_numpy

Floats = npt.NDArray[np.float32]
STAND_INS: Final = 2**31 - 2**28


class Part(NamedTuple):
    """Entries in bag order, as in `Lookups` but without padding. Bags are numbered from 0."""

    ids: Ints
    bags: Ints | None
    gains: Floats | None
    offsets: Ints | None
    num_bags: int


def split_groups(groups: Sequence[Group], parts: int) -> tuple[Group, ...]:
    """Return the groups of each of ``parts`` devices, which share the examples evenly and in order."""
    return tuple(Group(group.features, _share(group.features[0], group.num_bags, parts)) for group in groups)


def _share(feature: str, examples: int, parts: int) -> int:
    if examples % parts:
        raise ValueError(
            f"feature '{feature}': {examples} examples cannot be split evenly over the {parts} devices that this "
            f"process feeds; give a multiple of {parts}"
        )
    return examples // parts


def split(lookups: Lookups, groups: Sequence[Group], parts: int) -> list[Part]:
    """Return the entries of each device: views with one group, the groups' pieces concatenated with several."""
    ids, bags, gains, offsets = (
        None if array is None else np.asarray(array)
        for array in (lookups.ids, lookups.bags, lookups.gains, lookups.offsets)
    )
    assert ids is not None
    begins = np.cumsum([0, *(len(group.features) * group.num_bags for group in groups)])  # in bags
    made = []
    for part in range(parts):
        pieces: list[tuple[Any, ...]] = []
        num_bags = num_ids = 0
        for begin, end in itertools.pairwise(begins):
            size = int(end - begin) // parts
            first = int(begin) + part * size  # becomes bag num_bags of the part, its first entry entry num_ids
            if bags is None or offsets is None:
                pieces.append((ids[first : first + size], None, None, None))
            else:
                ends = offsets[first : first + size + 1]
                at = slice(int(ends[0]), int(ends[-1]))
                own = bags[at] - np.int32(first - num_bags)
                shifted = ends[1:] - np.int32(at.start - num_ids)
                pieces.append((ids[at], own, None if gains is None else gains[at], shifted))
            num_bags += size
            num_ids += len(pieces[-1][0])
        ids_of, bags_of, gains_of, ends_of = (_concatenated(arrays) for arrays in zip(*pieces, strict=True))
        offsets_of = None if ends_of is None else np.concatenate([np.zeros(1, np.int32), ends_of])
        made.append(Part(ids_of, bags_of, gains_of, offsets_of, num_bags))
    return made


def pieces(part: Part, count: int) -> Part:
    """Return the entries once for each of ``count`` pieces of their rows: bag b of piece p is ``p * num_bags + b``."""
    if count == 1:
        return part
    bags = offsets = None
    if part.bags is not None and part.offsets is not None:
        at = np.repeat(np.arange(count, dtype=np.int32), len(part.ids))
        bags = np.tile(part.bags, count) + at * np.int32(part.num_bags)
        ends = part.offsets[1:] + np.arange(count, dtype=np.int32)[:, None] * np.int32(len(part.ids))
        offsets = np.concatenate([np.zeros(1, np.int32), ends.reshape(-1)])
    gains = None if part.gains is None else np.tile(part.gains, count)
    return Part(np.tile(part.ids, count), bags, gains, offsets, count * part.num_bags)


def lookups_of(parts: Sequence[Part], ids: Any, ragged: bool, weighted: bool) -> Lookups:
    """Return the bags of all parts, whose entries have ``ids``, (parts, entries)."""
    (count, size), num_bags = ids.shape, parts[0].num_bags
    bags = np.full((count, size), num_bags, np.int32) if ragged else None
    offsets = np.empty((count, num_bags + 1), np.int32) if ragged else None
    gains = np.zeros((count, size), np.float32) if weighted else None
    for i, part in enumerate(parts):
        if bags is not None and offsets is not None:
            bags[i, : len(part.ids)] = np.arange(len(part.ids)) if part.bags is None else part.bags
            offsets[i] = np.arange(num_bags + 1) if part.offsets is None else part.offsets
        if gains is not None:
            gains[i, : len(part.ids)] = 1.0 if part.gains is None else part.gains
    return Lookups(joined(ids), joined(bags), joined(offsets), joined(gains), num_bags)


def joined(array: Any) -> Any:
    """Return an array of all parts, (parts, ...), as they are given to the devices: one after the other."""
    return None if array is None else array.reshape(-1, *array.shape[2:])


def _concatenated(arrays: Sequence[Any]) -> Any:
    if arrays[0] is None or len(arrays) == 1:
        return None if arrays[0] is None else np.ascontiguousarray(arrays[0])
    return np.concatenate(arrays)


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
        each = _share(name, len(ordered.offsets) - 1, parts)
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


class Raw(NamedTuple):
    """The raw ids of one device's entries.

    Attributes:
      words: (N, 2) uint32, lower and upper halves.
      segments: (N,) int32, the number of each id's table in the stack; -1 where there is no id.
    """

    words: npt.NDArray[np.uint32]
    segments: npt.NDArray[np.int32]


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
    segments, words = np.full_like(numbers, -1), np.zeros((*numbers.shape, 2), np.uint32)
    for i, own in enumerate(raw):
        at = slice(i * each, (i + 1) * each)
        there = numbers[at].view(np.uint32) < len(own.segments)  # others are padding
        segments[at][there] = own.segments[numbers[at][there]]
        words[at][there] = own.words[numbers[at][there]]
    return lookups.with_wanted(segments), words
