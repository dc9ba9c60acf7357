"""Raw ids of dynamic tables in a batch: 64 bits each, and no rows yet.

The packer works with positions: a feature of a dynamic table gets numbers of its stack's raw ids instead of the ids, is
packed as any other feature, and the positions are replaced by the ids at the end.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.embedding.dynamic.strings import hash_strings
from sparrow.embedding.inputs import read_input
from sparrow.embedding.ragged import Ragged
from sparrow.embedding.specs import FeatureSpec
from sparrow.embedding.stacking import Stack
from sparrow.kernels import Lookups
from sparrow.kernels.ids import words_of

POSITIONS: Final = 2**28
"""More than a batch has entries."""


class Raw(NamedTuple):
    """The raw ids of one stack.

    Attributes:
      words: (N, 2) uint32, lower and upper halves.
      segments: (N,) int32, the number of each id's table in the stack.
    """

    words: npt.NDArray[np.uint32]
    segments: npt.NDArray[np.int32]

    def laid_out(self, lookups: Lookups) -> tuple[Lookups, npt.NDArray[np.uint32]]:
        """Return lookups of positions with segments instead, -1 where there is no id, and the ids of the entries."""
        segments, words = self.at(np.asarray(lookups.ids))
        return dataclasses.replace(lookups, ids=segments), words

    def at(self, positions: npt.NDArray[np.int32]) -> tuple[Any, npt.NDArray[np.uint32]]:
        """Return segments and words at positions; -1 and 0 past the last one."""
        there = positions.view(np.uint32) < len(self.segments)
        at = np.where(there, positions, 0)
        if not len(self.segments):
            return np.full(len(positions), -1, np.int32), np.zeros((len(positions), 2), np.uint32)
        segments = np.where(there, self.segments[at], np.int32(-1))
        return segments, np.where(there[:, None], self.words[at], np.uint32(0))


class PositionStack(Stack):
    """A stack whose rows are positions, for the packer."""

    @property
    def num_rows(self) -> int:
        """More than there are positions."""
        return POSITIONS

    def rows_of(self, table: str) -> slice:
        """All tables begin at position 0."""
        return slice(0, POSITIONS)


def for_packing(
    features: Sequence[FeatureSpec], stacks: Sequence[Stack]
) -> tuple[tuple[FeatureSpec, ...], tuple[Stack, ...]]:
    """Return features and stacks as the packer takes them: dynamic ones with positions instead of rows."""
    made = tuple(
        feature
        if feature.table_spec.dynamic is None
        else dataclasses.replace(
            feature, table_spec=dataclasses.replace(feature.table_spec, vocabulary_size=POSITIONS, dynamic=None)
        )
        for feature in features
    )
    return made, tuple(
        PositionStack(stack.name, stack.tables, stack.step, stack.apart) if stack.is_dynamic else stack
        for stack in stacks
    )


def read_raw(
    features: Sequence[FeatureSpec], stacks: Sequence[Stack], inputs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Raw]]:
    """Return the inputs with positions instead of the ids of dynamic tables, and the raw ids by stack."""
    made, raw = dict(inputs), dict[str, Raw]()
    for stack in stacks:
        if not stack.is_dynamic:
            continue
        numbers = {table.name: number for number, table in enumerate(stack.tables)}
        collected = _Collected()
        for feature in features:
            number = numbers.get(feature.table_spec.name)
            if number is not None and feature.name in inputs:  # the packer refuses a batch that lacks one
                find = functools.partial(collected.positions, number)
                made[feature.name] = replaced(feature.name, inputs[feature.name], find)
        raw[stack.name] = collected.raw()
    return made, raw


class _Collected:
    """The raw ids of a stack, feature by feature."""

    def __init__(self) -> None:
        self._words, self._segments, self._count = [np.zeros((0, 2), np.uint32)], [np.zeros(0, np.int32)], 0

    def positions(self, number: int, ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        """Take ids of table ``number`` of the stack, and return their positions."""
        begin, self._count = self._count, self._count + len(ids)
        self._words.append(words_of(ids))
        self._segments.append(np.full(len(ids), number, np.int32))
        return np.arange(begin, self._count, dtype=np.int32)

    def raw(self) -> Raw:
        return Raw(np.concatenate(self._words), np.concatenate(self._segments))


def replaced(name: str, given: Any, find: Callable[[npt.NDArray[np.uint64]], npt.NDArray[np.int32]]) -> Any:
    """Return the input of a feature with the numbers that ``find`` has for its raw ids; -1 where an id is missing."""
    values, offsets, weights, missing, _ = read_input(name, hash_strings(given))
    ids = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64, copy=False).view(np.uint64)
    if missing is not None and not missing.any():
        missing = None
    shape = np.shape(given) if isinstance(given, np.ndarray) and given.dtype != object else None
    if shape is None and offsets is None:
        shape = (len(ids),)
    rows = find(ids if missing is None else ids[~missing])
    if missing is not None:
        full = np.full(len(missing), -1, np.int32)
        full[~missing] = rows
        rows = full
    return rows.reshape(shape) if shape is not None else Ragged(rows, offsets, weights)
