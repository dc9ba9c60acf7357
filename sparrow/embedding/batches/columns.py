"""Inputs of features as the filler takes them: columns of ids, which it checks as it writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.embedding.batches.inputs import hash_ids, read_input, refuse_outside
from sparrow.embedding.batches.ragged import Ragged
from sparrow.embedding.batches.sizes import within
from sparrow.embedding.batches.texts import hash_strings
from sparrow.embedding.specs import FeatureSpec
from sparrow.kernels import feed

_INTEGERS: Final = (np.dtype(np.int32), np.dtype(np.int64))


class ReadColumn(NamedTuple):
    """The input of one feature.

    Attributes:
      column: its ids.
      is_steady: whether every batch of this size has the same number of ids: such shapes need no padding.
    """

    column: feed.Column
    is_steady: bool

    @property
    def num_bags(self) -> int:
        ids, offsets = self.column[:2]
        return len(ids) if offsets is None else len(offsets) - 1


class Ordered(NamedTuple):
    """The elements of one ordered feature: each is a bag of one id.

    Attributes:
      column: the elements, without offsets.
      offsets: (batch + 1,) int32, where each sequence begins and ends.
      size: rows of the activations, where that is fixed; None: it follows the batch.
      is_even: whether all sequences have one length, which fixes the size.
    """

    column: feed.Column
    offsets: npt.NDArray[np.int32]
    size: int | None
    is_even: bool = False


def read_columns(features: Sequence[FeatureSpec], inputs: Mapping[str, Any]) -> dict[str, ReadColumn]:
    """Return the input of every feature; features that are given the same thing to read in the same way share it."""
    made: dict[Any, ReadColumn] = {}
    found = {}
    for feature in features:
        given, table = inputs[feature.name], feature.table_spec
        rows = table.vocabulary_size if feature.invalid_ids == "hash" else None
        alike = id(given), table.dynamic is None, rows
        if alike not in made:
            made[alike] = _read(feature, given)
        found[feature.name] = made[alike]
    return found


def _read(feature: FeatureSpec, given: Any) -> ReadColumn:
    table, is_raw = feature.table_spec, feature.table_spec.dynamic is not None
    hashes = feature.invalid_ids == "hash" and not is_raw
    if not hashes and (column := _as_it_is(given)) is not None:
        return ReadColumn(column, column.offsets is None)
    rows = None if is_raw else table.vocabulary_size
    ids, offsets, weights, missing, is_steady = read_input(feature.name, hash_strings(given) if is_raw else given, rows)
    if hashes:
        ids = np.where((ids < 0) | (ids >= table.vocabulary_size), hash_ids(ids, table), ids)
    if ids.dtype not in _INTEGERS:
        ids = ids.astype(np.uint64 if ids.dtype.kind == "u" else np.int64).view(np.int64)
    there = None if missing is None or not missing.any() else ~missing
    ends = None if offsets is None else offsets.astype(np.int64, copy=False)
    return ReadColumn(feed.Column(ids, ends, weights, there), is_steady)


def _as_it_is(given: Any) -> feed.Column | None:
    """Return an array of ids, or `Ragged` of arrays, as a pipeline makes them; None: it must be read."""
    if type(given) is not Ragged:
        return feed.Column(given) if _is_array(given, _INTEGERS) else None
    ids, offsets, weights = given.values, given.offsets, given.weights
    if not (_is_array(ids, _INTEGERS) and _is_array(offsets, _INTEGERS[1:], True) and len(offsets)):
        return None
    if offsets[0] != 0 or offsets[-1] != len(ids):
        return None
    is_weighted = weights is not None
    if is_weighted and not (_is_array(weights, [np.dtype(np.float32)], True) and len(weights) == len(ids)):
        return None
    return feed.Column(ids, offsets, weights)


def _is_array(values: Any, dtypes: Sequence[np.dtype[Any]], is_contiguous: bool = False) -> bool:
    is_one = type(values) is np.ndarray and values.ndim == 1 and values.dtype in dtypes
    return is_one and (not is_contiguous or values.flags.c_contiguous)


def read_ordered(feature: FeatureSpec, given: Any, read: ReadColumn, capacity: int | None) -> Ordered:
    """Check the sequences of one ordered feature; their ids are checked as in other features."""
    column = read.column
    if column.weights is not None:
        raise ValueError(
            f"feature '{feature.name}' keeps its rows in order (combiner=None) and takes no weights; "
            "multiply the activations instead"
        )
    offsets = np.arange(len(column.ids) + 1) if column.offsets is None else column.offsets
    if (offsets[1:] < offsets[:-1]).any():
        explain(feature, given)
    elements = feed.Column(column.ids, there=column.there)
    size = len(column.ids) if read.is_steady else None
    if capacity is not None:
        size = within(feature.name, len(column.ids), capacity)
    return Ordered(elements, offsets.astype(np.int32), size, read.is_steady and capacity is None)


def explain(feature: FeatureSpec, given: Any) -> None:
    """Raise the error of an input that the filler refused, if it is this feature's."""
    if feature.table_spec.dynamic is not None:
        read_input(feature.name, hash_strings(given))
    else:
        values, offsets, *_ = read_input(feature.name, given, feature.table_spec.vocabulary_size)
        refuse_outside(feature, values, offsets)


def replaced(name: str, given: Any, find: Callable[[npt.NDArray[np.uint64]], npt.NDArray[np.int32]]) -> Any:
    """Return the input of a feature with the numbers that ``find`` has for its raw ids; -1 where an id is missing."""
    values, offsets, weights, missing, _ = read_input(name, hash_strings(given))
    ids = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64, copy=False).view(np.uint64)
    rows = np.full(len(ids), -1, np.int32)
    there: Any = slice(None) if missing is None else ~missing
    rows[there] = find(ids[there])
    if isinstance(given, np.ndarray) and given.dtype != object:
        return rows.reshape(np.shape(given))
    return rows if offsets is None else Ragged(rows, offsets, weights)
