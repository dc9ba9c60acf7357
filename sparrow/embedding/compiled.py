"""Packing by compiled code: one pass over the ids of all features of a stack, without the interpreter's lock.

It takes arrays and `Ragged` bags of arrays, as a pipeline makes them. Other inputs, and wrong ones, are left to NumPy,
which makes the same arrays and explains mistakes.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from sparrow.embedding.ragged import Ragged
from sparrow.embedding.specs import FeatureSpec
from sparrow.embedding.stacking import Stack
from sparrow.kernels import Lookups, feed

Empty: TypeAlias = Callable[[int, Any], Any]
"""Makes an array of a size and dtype, with any content."""

_INTEGERS = (np.dtype(np.int32), np.dtype(np.int64))
_FLOATS = (np.dtype(np.float32),)


@dataclasses.dataclass(frozen=True)
class Given:
    """The inputs of one stack's features, as compiled code takes them.

    Attributes:
      features: in the order of the stack's features.
      tables: the table of each feature.
      num_rows: the rows of the stack, and the number for an id without a row.
    """

    features: list[feed.Given]
    tables: list[str]
    num_rows: int

    @property
    def num_bags(self) -> list[int]:
        """The number of bags of each feature."""
        return [_num_bags(given) for given in self.features]

    @property
    def counts(self) -> list[int]:
        """The ids of each feature."""
        return [len(given.ids) for given in self.features]

    @property
    def ragged(self) -> list[bool]:
        """Whether the bags of each feature may hold any number of ids."""
        return [given.offsets is not None for given in self.features]

    def lookups(self, size: int, empty: Empty) -> Lookups | None:
        """Return the lookups, with room for ``size`` ids; None: something is wrong."""
        library = feed.library()
        if library is None:
            return None
        groups = [
            (self.num_bags[group[0]], [self.features[i] for i in group])
            for group in grouped(self.num_bags, self.ragged, self.tables)
        ]
        pack = _bags if any(self.ragged) else _single
        return pack(library, groups, self.num_rows, size, empty)


def grouped(num_bags: Sequence[int], ragged: Sequence[bool], tables: Sequence[Hashable]) -> list[list[int]]:
    """Return the features of each `Group` of a stack, by their numbers: of one number of bags, single ids before bags.

    Single ids of a table that has bags too are among the bags: the gradients of a row are then summed example by
    example, as on a mesh, where each device has the entries of its own examples.

    >>> grouped([4, 2, 4, 4], [True, False, False, True], ["a", "b", "c", "d"])
    [[2], [0, 3], [1]]
    >>> grouped([4, 4, 4], [True, False, False], ["a", "a", "b"])
    [[2], [0, 1]]
    """
    in_bags = {table for table, own in zip(tables, ragged, strict=True) if own}
    keys = [(size, own) for size in dict.fromkeys(num_bags) for own in (False, True)]
    of_features = list(zip(num_bags, (table in in_bags for table in tables), strict=True))
    groups = ([i for i, own in enumerate(of_features) if own == key] for key in keys)
    return [group for group in groups if group]


def read(
    stack: Stack, members: Sequence[FeatureSpec], inputs: Mapping[str, Any], starts: Sequence[int]
) -> Given | None:
    """Return the inputs of one stack; None: NumPy must read them. ``starts``: the first row of each feature's table."""
    if feed.library() is None:
        return None
    features = []
    for feature, start in zip(members, starts, strict=True):
        given = _read(feature, inputs[feature.name], start)
        if given is None:
            return None
        features.append(given)
    return Given(features, [feature.table_spec.name for feature in members], stack.num_rows)


def _read(feature: FeatureSpec, ids: Any, start: int) -> feed.Given | None:
    table = feature.table_spec
    offsets = weights = None
    if feature.invalid_ids == "hash":
        return None
    if type(ids) is Ragged:
        ids, offsets, weights = ids.values, ids.offsets, ids.weights
        if not (_is_array(ids, _INTEGERS, True) and _is_array(offsets, _INTEGERS[1:], True) and len(offsets)):
            return None
        if offsets[0] != 0 or offsets[-1] != len(ids):
            return None
        if weights is not None and not (_is_array(weights, _FLOATS, True) and len(weights) == len(ids)):
            return None
    elif not _is_array(ids, _INTEGERS):
        return None
    ignores = feature.invalid_ids == "ignore"
    return feed.Given(ids, offsets, weights, start, table.vocabulary_size, ignores, feature.pooling)


def _is_array(values: Any, dtypes: Sequence[np.dtype[Any]], contiguous: bool = False) -> bool:
    is_one = type(values) is np.ndarray and values.ndim == 1 and values.dtype in dtypes
    return is_one and (not contiguous or values.flags.c_contiguous)


def _num_bags(given: feed.Given) -> int:
    return len(given.ids) if given.offsets is None else len(given.offsets) - 1


Groups: TypeAlias = Sequence[tuple[int, Sequence[feed.Given]]]
"""Features by their number of bags."""


def _single(library: ctypes.CDLL, groups: Groups, num_rows: int, size: int, empty: Empty) -> Lookups | None:
    """Where each bag holds one id."""
    ids, begin = empty(size, np.int32), 0
    for examples, features in groups:
        end = begin + examples * len(features)
        if not feed.pack_single(library, features, examples, num_rows, ids[begin:end]):
            return None
        begin = end
    return Lookups(ids, None, None, None, size)


def _bags(library: ctypes.CDLL, groups: Groups, num_rows: int, size: int, empty: Empty) -> Lookups | None:
    """Where bags hold any number of ids."""
    held = [given for _, features in groups for given in features]
    num_bags = sum(examples * len(features) for examples, features in groups)
    count = sum(len(given.ids) for given in held)
    is_weighted = any(
        given.weights is not None or (given.offsets is not None and given.combiner != "sum") for given in held
    )
    ids, bags, offsets = empty(size, np.int32), empty(size, np.int32), empty(num_bags + 1, np.int32)
    gains: Any = empty(size, np.float32) if is_weighted else None
    entry = bag = 0
    offsets[0] = 0
    for examples, features in groups:
        entry = feed.pack_bags(library, features, examples, num_rows, (entry, bag), ids[:count], bags, offsets, gains)
        if entry < 0:
            return None
        bag += examples * len(features)
    ids[count:], bags[count:] = num_rows, num_bags
    if gains is not None:
        gains[count:] = 0.0
    return Lookups(ids, bags, offsets, gains, num_bags)
