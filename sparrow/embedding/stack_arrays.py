"""The arrays of one stack's `Lookups`, from the bags of its features, by NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.embedding.inputs import Bags
from sparrow.embedding.packed_batch import Group
from sparrow.embedding.stacking import Stack
from sparrow.kernels import Lookups


def lookups_of(stack: Stack, groups: Sequence[Group], bags: Mapping[str, Bags], starts: Mapping[str, int]) -> Lookups:
    """Return the lookups of one stack. ``starts``: the first row of each feature's table."""
    num_bags = sum(len(group.features) * group.num_bags for group in groups)
    held = [bags[name] for group in groups for name in group.features]
    weighted = any(feature.gains is not None for feature in held)
    if all(feature.lengths is None for feature in held):
        blocks = []
        for group in groups:
            block = np.empty((group.num_bags, len(group.features)), np.int32)
            for i, name in enumerate(group.features):
                _in_stack(stack, bags[name], starts[name], out=block[:, i])
            blocks.append(block.reshape(-1))
        return Lookups(_join(blocks), None, None, None, num_bags)

    lengths, entries = [], []
    for group in groups:
        members = [bags[name] for name in group.features]
        table = np.stack([_lengths(member) for member in members], axis=1)  # (batch, features)
        lengths.append(table.reshape(-1))
        rows = [_in_stack(stack, bags[name], starts[name]) for name in group.features]
        entries.append(_interleave(members, rows, table, weighted))
    all_lengths = _join(lengths)
    offsets: Any = np.zeros(num_bags + 1, np.int32)
    np.cumsum(all_lengths, out=offsets[1:])
    ids = _join([ids for ids, _ in entries])
    return Lookups(
        ids=ids,
        bags=np.repeat(np.arange(num_bags, dtype=np.int32), all_lengths),  # type: ignore[arg-type]
        offsets=offsets,
        gains=_join([gains for _, gains in entries]) if weighted else None,
        num_bags=num_bags,
    )


def padded_to(lookups: Lookups, size: int, num_rows: int) -> Lookups:
    """Return the lookups with room for ``size`` entries; entries added read no row."""
    if len(lookups.ids) == size:
        return lookups
    return dataclasses.replace(
        lookups,
        ids=_pad(lookups.ids, size, num_rows),
        bags=_pad(lookups.bags, size, lookups.num_bags),
        gains=None if lookups.gains is None else _pad(lookups.gains, size, 0.0),
    )


def _in_stack(stack: Stack, bags: Bags, start: int, out: Any = None) -> npt.NDArray[np.int32]:
    """Return the ids as rows of the stack's array, in which their table begins at row ``start``."""
    rows: npt.NDArray[np.int32] = np.add(bags.ids, np.int32(start), out=out)
    if bags.valid is not None:
        rows[~bags.valid] = stack.num_rows  # no row: it reads zeros and is not updated
    return rows


def _lengths(bags: Bags) -> npt.NDArray[np.int32]:
    return np.ones(len(bags.ids), np.int32) if bags.lengths is None else bags.lengths


def _interleave(
    members: Sequence[Bags], rows: Sequence[npt.NDArray[np.int32]], lengths: npt.NDArray[np.int32], weighted: bool
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Entries in bag order, example by example, from features that come one after the other."""
    starts = np.cumsum(lengths.reshape(-1)).reshape(lengths.shape) - lengths  # (batch, features) in the result
    total = int(lengths.sum())
    ids = np.empty(total, np.int32)
    gains = np.ones(total if weighted else 0, np.float32)
    for i, (member, of_member) in enumerate(zip(members, rows, strict=True)):
        own = lengths[:, i]
        if len(members) == 1:
            at: Any = slice(None)
        else:
            at = np.repeat(starts[:, i] - (np.cumsum(own) - own), own) + np.arange(len(of_member))
        ids[at] = of_member
        if member.gains is not None:
            gains[at] = member.gains
    return ids, gains


def _join(parts: Sequence[npt.NDArray[Any]]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _pad(array: Any, size: int, value: float) -> Any:
    padded = np.full(size, value, array.dtype)
    padded[: len(array)] = array
    return padded
