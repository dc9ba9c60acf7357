"""Inputs of a feature: from lists, arrays, Arrow, sparse matrices or `Ragged` to checked bags of row numbers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sparrow.embedding.hashing import hash_integers
from sparrow.embedding.sparse_matrices import is_matrix, offsets_of, read_matrix
from sparrow.embedding.specs import FeatureSpec, TableSpec
from sparrow.registry import answering

Ints: TypeAlias = npt.NDArray[np.integer[Any]]
Floats: TypeAlias = npt.NDArray[np.float32]


@answering
@dataclasses.dataclass(frozen=True)
class Ragged:
    """Bags of different lengths: bag i holds ``values[offsets[i]:offsets[i + 1]]``, with optional weights.

    >>> Ragged(values=[3, 1, 4], offsets=[0, 2, 2, 3]).to_lists()
    [[3, 1], [], [4]]

    Attributes:
      values: (N,) ids.
      offsets: (batch + 1,) from 0 to N, never decreasing.
      weights: (N,) numbers, or None for all 1.
    """

    values: Any
    offsets: Any
    weights: Any = None

    @classmethod
    def from_lists(cls, values: Iterable[Any], weights: Iterable[Any] | None = None) -> Ragged:
        """Return the bags of lists of ids, and of lists of their weights. None is an empty bag.

        >>> Ragged.from_lists([[3, 1], [], [4]], [[0.5, 2.0], [], [1.0]]).weights.tolist()
        [0.5, 2.0, 1.0]
        """
        bags = _bags_of("Ragged.from_lists", list(values))
        if weights is None:
            return cls(_concatenated(bags), np.cumsum([0, *map(len, bags)]))
        held = [np.asarray([] if bag is None else bag, np.float32) for bag in weights]
        if len(held) != len(bags):
            raise ValueError(f"Ragged.from_lists: {len(bags)} bags need as many lists of weights, got {len(held)}")
        for i, (bag, own) in enumerate(zip(bags, held, strict=True)):
            if bag.shape != own.shape:
                raise ValueError(f"Ragged.from_lists: bag {i} has {len(bag)} ids and weights of shape {own.shape}")
        return cls(
            _concatenated(bags), np.cumsum([0, *map(len, bags)]), np.concatenate([*held, np.zeros(0, np.float32)])
        )

    @classmethod
    def from_lengths(cls, values: Any, lengths: Any, weights: Any = None) -> Ragged:
        """Return the bags of ids that lie one after the other, as in one feature of TorchRec's ``KeyedJaggedTensor``.

        >>> Ragged.from_lengths([3, 1, 4], [2, 0, 1]).to_lists()
        [[3, 1], [], [4]]

        Args:
          values: (N,) ids.
          lengths: (batch,) the number of ids of each bag; their sum is N.
          weights: (N,) numbers, or None for all 1.
        """
        counts, count = _integers("Ragged.from_lengths", lengths, "lengths"), len(values)
        if counts.size and counts.min() < 0:
            raise ValueError(f"Ragged.from_lengths: lengths must be at least 0, got {counts.min()}")
        if counts.sum() != count:
            raise ValueError(
                f"Ragged.from_lengths: the lengths add up to {counts.sum()}, but there are {count} values; give the "
                "values and lengths of one feature"
            )
        return cls(values, np.concatenate([[0], np.cumsum(counts)]), weights)

    @classmethod
    def from_coo(cls, indices: Any, values: Any, dense_shape: Any, weights: Any = None) -> Ragged:
        """Return the bags of a sparse tensor whose entries are ids: ``values[i]`` belongs to example ``indices[i, 0]``.

        The ids of an example are in the order of their second index.

        >>> Ragged.from_coo([[0, 0], [0, 1], [2, 0]], [3, 1, 4], dense_shape=(3, 2)).to_lists()
        [[3, 1], [], [4]]

        Args:
          indices: (N, 2) pairs of example and position.
          values: (N,) ids.
          dense_shape: (batch, longest bag).
          weights: (N,) numbers, or None for all 1.
        """
        places, ids = np.asarray(indices).reshape(-1, 2), np.asarray(values)
        if ids.shape != (len(places),):
            raise ValueError(f"Ragged.from_coo: {len(places)} indices need as many values, got the shape {ids.shape}")
        batch = int(dense_shape[0])
        if len(places) and not (places[:, 0].min() >= 0 and places[:, 0].max() < batch):
            raise ValueError(f"Ragged.from_coo: indices name examples outside 0 to {batch - 1}; check dense_shape")
        order = np.lexsort((places[:, 1], places[:, 0]))
        kept = None if weights is None else np.asarray(weights)[order]
        return cls(ids[order], offsets_of(places[:, 0], batch), kept)

    def to_lists(self) -> list[list[int]]:
        """Return the ids, bag by bag."""
        values, offsets = np.asarray(self.values), np.asarray(self.offsets)
        return [values[a:b].tolist() for a, b in itertools.pairwise(offsets)]


@dataclasses.dataclass(frozen=True)
class Bags:
    """One feature's checked input."""

    ids: npt.NDArray[np.int32]  # (N,)
    lengths: npt.NDArray[np.int32] | None  # (batch,); None: every bag holds exactly one id
    gains: Floats | None  # (N,); None: all 1
    valid: npt.NDArray[np.bool_] | None  # (N,); the other ids are to be ignored; None: all are valid
    steady: bool  # whether every batch of this size has the same number of ids: such shapes need no padding

    @property
    def num_bags(self) -> int:
        """The feature's batch size."""
        return len(self.ids) if self.lengths is None else len(self.lengths)


def to_bags(feature: FeatureSpec, given: Any) -> Bags:
    """Check one feature's input and compute its gains."""
    columns = None if feature.table_spec.dynamic is not None else feature.table_spec.vocabulary_size
    values, offsets, weights, missing, steady = read_input(feature.name, given, columns)
    ids, valid = _in_range(feature, values, offsets)
    if missing is not None:
        valid = ~missing if valid is None else valid & ~missing
    lengths = None if offsets is None else np.diff(offsets).astype(np.int32)
    gains = _gains(feature.pooling, lengths, weights, valid)
    return Bags(ids, lengths, gains, valid, steady)


def read_input(
    name: str, given: Any, columns: int | None = None
) -> tuple[Ints, Ints | None, Floats | None, npt.NDArray[np.bool_] | None, bool]:
    """Values, offsets (None: one id per bag), weights, mask of missing ids, and whether the length is steady.

    ``columns``: the number of columns of a sparse matrix; None: any.
    """
    if isinstance(given, Ragged):
        values = _integers(f"feature '{name}'", given.values)
        offsets = _check_offsets(name, np.asarray(given.offsets), len(values))
        return values, offsets, _check_weights(name, given.weights, len(values)), None, False
    if type(given).__module__.startswith("pyarrow") or hasattr(given, "__arrow_c_stream__"):
        from sparrow.embedding.arrow import read_arrow

        return (*read_arrow(name, given), False)
    if is_matrix(given):
        ids, starts, weights = read_matrix(name, given, columns)
        return ids, starts, _check_weights(name, weights, len(ids)), None, False
    if isinstance(given, tuple) and _is_values_and_offsets(given):
        raise TypeError(
            f"feature '{name}': a tuple of values and offsets is read as two bags; give sp.Ragged(values, offsets), "
            "or a list where two bags are meant"
        )
    if not isinstance(given, list | tuple | np.ma.MaskedArray):
        given = np.asarray(given)
        given = given.tolist() if given.dtype == object else given
    if isinstance(given, list | tuple) and any(bag is None or isinstance(bag, _LISTS) for bag in given):
        bags = _bags_of(f"feature '{name}'", given)
        return _concatenated(bags), np.cumsum([0, *map(len, bags)]), None, None, False
    missing = np.ma.getmaskarray(given).reshape(-1) if isinstance(given, np.ma.MaskedArray) else None
    array = np.asarray(given)
    if array.ndim == 2:
        offsets = np.arange(array.shape[0] + 1) * array.shape[1]
        return _integers(f"feature '{name}'", array.reshape(-1)), offsets, None, missing, True
    return _integers(f"feature '{name}'", array), None, None, missing, True


_LISTS: Final = (list, tuple, np.ndarray)


def _is_values_and_offsets(given: tuple[Any, ...]) -> bool:
    """Whether the second member has the form of offsets into the first; a third one may hold weights."""
    if len(given) not in (2, 3) or any(not hasattr(member, "__len__") for member in given):
        return False
    values, offsets = given[0], np.asarray(given[1])
    if offsets.ndim != 1 or len(offsets) < 2 or offsets.dtype.kind not in "iu":
        return False
    return bool(offsets[0] == 0 and offsets[-1] == len(values) and (offsets[1:] >= offsets[:-1]).all())


def _bags_of(where: str, given: Sequence[Any]) -> list[Ints]:
    """Return the ids of each bag; None is an empty one, and an id among lists is a mistake."""
    if all(bag is None or isinstance(bag, _LISTS) for bag in given):
        return [_integers(where, () if bag is None else bag) for bag in given]
    if any(isinstance(bag, _LISTS) for bag in given):
        raise TypeError(f"{where}: a list holds either ids or lists of ids, not both")
    return [_integers(where, () if id is None else (id,)) for id in given]


def _integers(where: str, given: Any, what: str = "ids") -> Ints:
    array = np.asarray(given)
    if array.size == 0 and array.ndim <= 1:
        return np.zeros(0, np.int64)
    if array.dtype.kind not in "iu":
        remedy = "; hash or convert them first" if what == "ids" else ""
        raise TypeError(f"{where}: {what} must be integers, got {array.dtype}{remedy}")
    if array.ndim != 1:
        forms = "1-D (or 2-D for bags of one length)" if what == "ids" else "1-D"
        raise ValueError(f"{where}: {what} must be {forms}, got {array.ndim}-D")
    return array


def _concatenated(bags: Sequence[Ints]) -> Ints:
    """All ids as integers: NumPy joins signed and unsigned ones of 64 bits to floating-point numbers."""
    bags = [bag for bag in bags if len(bag)]
    if len({bag.dtype for bag in bags}) > 1 and any(bag.dtype == np.uint64 for bag in bags):
        bags = [bag.astype(np.uint64 if bag.dtype.kind == "u" else np.int64).view(np.uint64) for bag in bags]
    return np.concatenate(bags) if bags else np.zeros(0, np.int64)


def _check_offsets(name: str, offsets: npt.NDArray[Any], count: int) -> Ints:
    if offsets.ndim != 1 or len(offsets) < 1 or not np.issubdtype(offsets.dtype, np.integer):
        raise ValueError(f"feature '{name}': offsets must be a 1-D array of integers, one more than bags")
    offsets = offsets.astype(np.int64, copy=False)
    if offsets[0] != 0 or offsets[-1] != count:
        raise ValueError(
            f"feature '{name}': offsets must run from 0 to the number of ids ({count}), "
            f"got {offsets[0]} to {offsets[-1]}"
        )
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if falls.size:
        at = int(falls[0])
        raise ValueError(
            f"feature '{name}': offsets must never decrease, but row {at} runs from {offsets[at]} to {offsets[at + 1]}"
        )
    return offsets


def _check_weights(name: str, weights: Any, count: int) -> Floats | None:
    if weights is None:
        return None
    array = np.asarray(weights)
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise TypeError(f"feature '{name}': weights must be numbers, got {array.dtype}")
    if array.shape != (count,):
        raise ValueError(f"feature '{name}': {count} ids need as many weights, got an array of shape {array.shape}")
    array = array.astype(np.float32)
    if not np.isfinite(array).all():
        at = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(f"feature '{name}': weights must be finite, but weight {at} is {array[at]}")
    return array


def _in_range(
    feature: FeatureSpec, values: Ints, offsets: Ints | None
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_] | None]:
    """Return row numbers as a fresh int32 array, and the mask of the ids that count (None: all)."""
    table = feature.table_spec
    rows = table.vocabulary_size
    # Read as unsigned, a negative id is a huge one: one pass over the ids is enough.
    if values.size == 0 or values.view(f"u{values.dtype.itemsize}").max() < rows:
        return values.astype(np.int32), None
    invalid = (values < 0) | (values >= rows)
    if feature.invalid_ids == "error":
        at = int(np.flatnonzero(invalid)[0])
        row = at if offsets is None else int(np.searchsorted(offsets, at, side="right")) - 1
        raise ValueError(
            f"feature '{feature.name}': id {values[at]} in row {row} is outside table '{table.name}', whose ids are "
            f"0 to {rows - 1}; correct the data, or set FeatureSpec.invalid_ids to 'ignore' or 'hash'"
        )
    replacement = np.int64(0) if feature.invalid_ids == "ignore" else hash_ids(values, table)
    ids = np.where(invalid, replacement, values).astype(np.int32)
    return ids, (~invalid if feature.invalid_ids == "ignore" else None)


def hash_ids(values: Ints, table: TableSpec) -> npt.NDArray[np.int64]:
    """Send any 64-bit id to a row of ``table``, the same one always and everywhere (splitmix64, then modulo)."""
    return (hash_integers(values) % np.uint64(table.vocabulary_size)).astype(np.int64)


def _gains(
    combiner: str, lengths: npt.NDArray[np.int32] | None, weights: Floats | None, valid: npt.NDArray[np.bool_] | None
) -> Floats | None:
    """Return the factor of each looked-up row; None: 1."""
    if combiner == "sum" or lengths is None:  # an ignored id reads zeros for any gain
        return weights
    if valid is not None:
        weights = valid.astype(np.float32) if weights is None else weights * valid
    bags = np.repeat(np.arange(len(lengths)), lengths)
    if weights is None:
        total = lengths.astype(np.float64)  # every weight is 1, and so is its square
        weights = np.ones(len(bags), np.float32)
    else:
        exact = weights.astype(np.float64)
        summand = exact if combiner == "mean" else exact * exact
        total = np.bincount(bags, summand, minlength=len(lengths)).astype(np.float64)
    divisor = total if combiner == "mean" else np.sqrt(total)
    factor = np.divide(1.0, divisor, out=np.zeros_like(divisor), where=divisor != 0)
    return (weights * factor[bags]).astype(np.float32)
