"""From one batch of every feature's bags to what a jitted step needs: one `Lookups` per stack."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from sparrow.embedding.inputs import Bags, to_bags
from sparrow.embedding.specs import FeatureSpec
from sparrow.embedding.stacking import Stack
from sparrow.kernels import Lookups
from sparrow.registry import nearest

MAX_ENTRIES = 2**28  # with MAX_ROWS of the specs, row numbers and spare numbers stay within int32


class Group(NamedTuple):
    """Features of one stack with one batch size: bag ``b * len(features) + i`` is feature i of example b."""

    features: tuple[str, ...]
    num_bags: int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PackedBatch:
    """A batch as `Embedder.pack` makes it: a pytree of arrays whose shapes depend on the batch's size class only."""

    lookups: dict[str, Lookups]  # by stack
    groups: tuple[tuple[str, tuple[Group, ...]], ...] = dataclasses.field(metadata={"static": True})  # by stack


def pack(features: Sequence[FeatureSpec], stacks: Sequence[Stack], inputs: Mapping[str, Any]) -> PackedBatch:
    """Checks and packs one batch: ``inputs`` holds every feature by name."""
    names = {feature.name for feature in features}
    for given in inputs:
        if given not in names:
            raise ValueError(f"unknown feature '{given}': {nearest(str(given), names)}")
    if missing := sorted(names - set(inputs)):
        raise ValueError(f"the batch lacks the feature{'s' * (len(missing) > 1)} {', '.join(missing)}")
    bags = {feature.name: to_bags(feature, inputs[feature.name]) for feature in features}

    lookups, groups = {}, []
    for stack in stacks:
        tables = {table.name for table in stack.tables}
        members = [feature for feature in features if feature.table_spec.name in tables]
        by_size: dict[int, list[str]] = {}
        for feature in members:
            by_size.setdefault(bags[feature.name].num_bags, []).append(feature.name)
        stack_groups = tuple(Group(tuple(names), size) for size, names in by_size.items())
        in_stack = {feature.name: _in_stack(stack, feature, bags[feature.name]) for feature in members}
        lookups[stack.name] = _lookups(stack, stack_groups, in_stack)
        groups.append((stack.name, stack_groups))
    return PackedBatch(lookups, tuple(groups))


def size_class(count: int) -> int:
    """The next of 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, ...: four sizes an octave, at most a quarter unused.

    >>> [size_class(n) for n in (0, 8, 9, 33, 1000)]
    [8, 8, 10, 40, 1024]
    """
    if count <= 8:
        return 8
    step = 1 << ((count - 1).bit_length() - 3)
    return -(-count // step) * step


def _in_stack(stack: Stack, feature: FeatureSpec, bags: Bags) -> Bags:
    """The same bags with rows of the stack's array instead of rows of the table."""
    first = stack.rows_of(feature.table_spec.name).start
    rows = feature.table_spec.vocabulary_size
    if first == 0 and rows == stack.num_rows:
        return bags
    return dataclasses.replace(
        bags, ids=np.where(bags.ids < rows, bags.ids + np.int32(first), np.int32(stack.num_rows))
    )


def _lookups(stack: Stack, groups: Sequence[Group], bags: Mapping[str, Bags]) -> Lookups:
    num_bags = sum(len(group.features) * group.num_bags for group in groups)
    weighted = any(feature.gains is not None for feature in bags.values())
    if all(feature.lengths is None for feature in bags.values()):
        by_group = [np.stack([bags[name].ids for name in group.features], axis=1).reshape(-1) for group in groups]
        return Lookups(_join(by_group), None, None, None, num_bags)

    lengths, entries = [], []
    for group in groups:
        members = [bags[name] for name in group.features]
        table = np.stack([_lengths(member) for member in members], axis=1)  # (batch, features)
        lengths.append(table.reshape(-1))
        entries.append(_interleave(members, table, weighted))
    all_lengths = _join(lengths)
    offsets: Any = np.zeros(num_bags + 1, np.int32)
    np.cumsum(all_lengths, out=offsets[1:])
    ids = _join([ids for ids, _ in entries])
    if len(ids) > MAX_ENTRIES:
        raise ValueError(f"a batch holds at most {MAX_ENTRIES} ids for tables of one kind, got {len(ids)}; split it")
    size = len(ids) if all(feature.steady for feature in bags.values()) else size_class(len(ids))
    return Lookups(
        ids=_pad(ids, size, stack.num_rows),
        bags=_pad(np.repeat(np.arange(num_bags, dtype=np.int32), all_lengths), size, num_bags),
        offsets=offsets,
        gains=_pad(_join([gains for _, gains in entries]), size, 0.0) if weighted else None,
        num_bags=num_bags,
    )


def _lengths(bags: Bags) -> npt.NDArray[np.int32]:
    return np.ones(len(bags.ids), np.int32) if bags.lengths is None else bags.lengths


def _interleave(
    members: Sequence[Bags], lengths: npt.NDArray[np.int32], weighted: bool
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Entries in bag order, example by example, from features that come one after the other."""
    starts = np.cumsum(lengths.reshape(-1)).reshape(lengths.shape) - lengths  # (batch, features) in the result
    total = int(lengths.sum())
    ids = np.empty(total, np.int32)
    gains = np.ones(total if weighted else 0, np.float32)
    for i, member in enumerate(members):
        own = lengths[:, i]
        if len(members) == 1:
            at: Any = slice(None)
        else:
            at = np.repeat(starts[:, i] - (np.cumsum(own) - own), own) + np.arange(len(member.ids))
        ids[at] = member.ids
        if member.gains is not None:
            gains[at] = member.gains
    return ids, gains


def _join(parts: Sequence[npt.NDArray[Any]]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _pad(array: npt.NDArray[Any], size: int, value: float) -> Any:
    if len(array) == size:
        return array
    padded = np.full(size, value, array.dtype)
    padded[: len(array)] = array
    return padded
