"""`Part`: the entries of one stack that one device feeds, cut from the lookups of a process's batch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.embedding.packed_batch import Group
from sparrow.embedding.sharding.layout import Ints
from sparrow.kernels import Lookups

Floats = npt.NDArray[np.float32]


class Part(NamedTuple):
    """Entries in bag order, as in `Lookups` but without padding. Bags are numbered from 0."""

    ids: Ints
    bags: Ints | None
    gains: Floats | None
    offsets: Ints | None
    num_bags: int


def split_groups(groups: Sequence[Group], parts: int) -> tuple[Group, ...]:
    """Return the groups of each of ``parts`` devices, which share the examples evenly and in order."""
    for group in groups:
        if group.num_bags % parts:
            raise ValueError(
                f"feature '{group.features[0]}': {group.num_bags} examples cannot be split evenly over the {parts} "
                f"devices that this process feeds; give a multiple of {parts}"
            )
    return tuple(Group(group.features, group.num_bags // parts) for group in groups)


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
