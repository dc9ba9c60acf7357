"""`Ragged`: bags of ids of different lengths; ids from Python as arrays of integers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sparrow.registry import answering

Ints: TypeAlias = npt.NDArray[np.integer[Any]]
Floats: TypeAlias = npt.NDArray[np.float32]

LISTS: Final = (list, tuple, np.ndarray)
"""Types of a bag inside a list."""


def bags_of(where: str, given: Sequence[Any]) -> list[Ints]:
    """Return the ids of each bag; None is an empty one, and an id among lists is a mistake."""
    if all(bag is None or isinstance(bag, LISTS) for bag in given):
        return [integers(where, () if bag is None else bag) for bag in given]
    if any(isinstance(bag, LISTS) for bag in given):
        raise TypeError(f"{where}: a list holds either ids or lists of ids, not both")
    return [integers(where, () if id is None else (id,)) for id in given]


def integers(where: str, given: Any, what: str = "ids") -> Ints:
    """Return a 1-D array of integers, or raise an error that begins with ``where``."""
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


def concatenated(bags: Sequence[Ints]) -> Ints:
    """Return all ids as integers: NumPy joins signed and unsigned ones of 64 bits to floating-point numbers."""
    bags = [bag for bag in bags if len(bag)]
    if len({bag.dtype for bag in bags}) > 1 and any(bag.dtype == np.uint64 for bag in bags):
        bags = [bag.astype(np.uint64 if bag.dtype.kind == "u" else np.int64).view(np.uint64) for bag in bags]
    return np.concatenate(bags) if bags else np.zeros(0, np.int64)


def offsets_of(rows: npt.NDArray[Any], batch: int) -> npt.NDArray[np.int64]:
    """Return where each example begins, from the example of each entry."""
    offsets = np.zeros(batch + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=batch), out=offsets[1:])
    return offsets


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
        bags = bags_of("Ragged.from_lists", list(values))
        if weights is None:
            return cls(concatenated(bags), np.cumsum([0, *map(len, bags)]))
        held = [np.asarray([] if bag is None else bag, np.float32) for bag in weights]
        if len(held) != len(bags):
            raise ValueError(f"Ragged.from_lists: {len(bags)} bags need as many lists of weights, got {len(held)}")
        for i, (bag, own) in enumerate(zip(bags, held, strict=True)):
            if bag.shape != own.shape:
                raise ValueError(f"Ragged.from_lists: bag {i} has {len(bag)} ids and weights of shape {own.shape}")
        return cls(
            concatenated(bags), np.cumsum([0, *map(len, bags)]), np.concatenate([*held, np.zeros(0, np.float32)])
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
        counts, count = integers("Ragged.from_lengths", lengths, "lengths"), len(values)
        if counts.size and counts.min() < 0:
            raise ValueError(f"Ragged.from_lengths: lengths must be at least 0, got {counts.min()}")
        if counts.sum() != count:
            raise ValueError(
                f"Ragged.from_lengths: the lengths add up to {counts.sum()}, but there are {count} values; give the "
                "values and lengths of one feature"
            )
        return cls(values, np.concatenate([[0], np.cumsum(counts)]), weights)

    @classmethod
    def from_offsets(
        cls, values: Any, offsets: Any, weights: Any = None, *, include_last_offset: bool = False
    ) -> Ragged:
        """Return the bags of ids that begin at ``offsets``, as in ``torch.nn.EmbeddingBag``.

        >>> Ragged.from_offsets([3, 1, 4], [0, 2, 2]).to_lists()
        [[3, 1], [], [4]]

        Args:
          values: (N,) ids.
          offsets: (batch,) the place of the first id of each bag, from 0, never decreasing; the last bag ends with the
            values.
          weights: (N,) numbers, torch's ``per_sample_weights``, or None for all 1.
          include_last_offset: whether ``offsets`` ends with N, (batch + 1,): the form of TorchRec's offsets, and of
            ``Ragged`` itself.
        """
        starts, count = integers("Ragged.from_offsets", offsets, "offsets"), len(values)
        starts = starts.astype(np.int64, copy=False)
        if include_last_offset and (not len(starts) or starts[-1] != count):
            last = starts[-1] if len(starts) else "none"
            raise ValueError(
                f"Ragged.from_offsets: with include_last_offset the offsets end with the number of values, {count}, "
                f"got {last}"
            )
        ends = starts if include_last_offset else np.append(starts, count)
        if ends[0] != 0 or (ends[1:] < ends[:-1]).any():
            raise ValueError(
                f"Ragged.from_offsets: offsets must begin with 0, never decrease, and be at most the number of values, "
                f"{count}; give the values and offsets of one feature"
            )
        return cls(values, ends, weights)

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
