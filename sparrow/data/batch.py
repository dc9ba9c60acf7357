"""`Batch`: rows that are ready for a step, by their use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.data.errors import DataError
from sparrow.data.values import offsets_of, places_of
from sparrow.embedding import Ragged

Values = Any  # an array whose first axis is the batch, or a `Ragged`


@dataclasses.dataclass(frozen=True)
class Batch:
    """Converted rows, by name. All parts have the same number of rows; negatives have a number of their own.

    Attributes:
      ids: (batch,) int32, -1 where there is no id; (batch, 3) int32 for raw ids, lower half, upper half, and 0 where
        there is none; or `Ragged` where a row holds several.
      numbers: (batch, dim) float32.
      sequences: `Ragged` numbers in order, (elements, dim) float32.
      labels: (batch,) float32; `Ragged` with a number for each candidate where an example has several.
      weights: (batch,) float32 sample weights.
      keys: (batch,) int64; strings are hashed.
      negatives: items that were drawn for these rows, if any: shared ones, then as many for each row as its own.
      takes_part: (batch, shared + own) which of them are negatives of a row; None: all, except the item it chose.
      log_q: (batch + negatives,) float32, the logarithm of how often the sampler draws each item chosen, then each item
        drawn; None: not known.
      padding: the number of rows at the end that hold nothing, and fill a short batch.
    """

    ids: dict[str, Values] = dataclasses.field(default_factory=dict)
    numbers: dict[str, npt.NDArray[np.float32]] = dataclasses.field(default_factory=dict)
    sequences: dict[str, Ragged] = dataclasses.field(default_factory=dict)
    labels: dict[str, Values] = dataclasses.field(default_factory=dict)
    weights: dict[str, npt.NDArray[np.float32]] = dataclasses.field(default_factory=dict)
    keys: dict[str, npt.NDArray[np.int64]] = dataclasses.field(default_factory=dict)
    negatives: Batch | None = None
    takes_part: npt.NDArray[np.bool_] | None = None
    log_q: npt.NDArray[np.float32] | None = None
    padding: int = 0

    def __len__(self) -> int:
        for part in PARTS:
            for values in getattr(self, part).values():
                return len(values.offsets) - 1 if isinstance(values, Ragged) else len(values)
        return 0

    @property
    def examples(self) -> int:
        """The number of rows without padding."""
        return len(self) - self.padding

    def without_padding(self) -> Batch:
        return self.cut(0, self.examples) if self.padding else self

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> Batch:
        return self._map(lambda values: take(values, rows))

    def cut(self, start: int, stop: int) -> Batch:
        """Return the rows ``start`` to ``stop``, without a copy where possible."""
        return self._map(lambda values: cut(values, start, stop))

    def _map(self, function: Callable[[Values], Values]) -> Batch:
        parts: Any = {part: {name: function(v) for name, v in getattr(self, part).items()} for part in PARTS}
        return Batch(**parts)


OTHERS = ("negatives", "takes_part", "log_q", "padding")
PARTS = tuple(field.name for field in dataclasses.fields(Batch) if field.name not in OTHERS)


def take(values: Values, rows: npt.NDArray[np.integer[Any]]) -> Values:
    """Return the given rows of one column.

    >>> take(Ragged(np.array([3, 1, 4]), np.array([0, 2, 2, 3])), np.array([2, 0])).to_lists()
    [[4], [3, 1]]
    """
    if not isinstance(values, Ragged):
        return np.take(values, rows, axis=0, mode="clip")  # all are in range: nothing is clipped, and no check is made
    lengths = np.diff(values.offsets)[rows]
    at = places_of(values.offsets[rows], lengths)
    weights = None if values.weights is None else np.take(values.weights, at, mode="clip")
    return Ragged(np.take(values.values, at, axis=0, mode="clip"), offsets_of(lengths), weights)


def cut(values: Values, start: int, stop: int) -> Values:
    """Return the rows ``start`` to ``stop`` of one column."""
    if not isinstance(values, Ragged):
        return values[start:stop]
    a, b = int(values.offsets[start]), int(values.offsets[stop])
    weights = None if values.weights is None else values.weights[a:b]
    return Ragged(values.values[a:b], values.offsets[start : stop + 1] - a, weights)


def nothing_like(values: Values, rows: int) -> Values:
    """Return ``rows`` rows of a column that hold zeros, or empty bags.

    >>> nothing_like(Ragged(np.array([3, 1, 4]), np.array([0, 2, 3])), 3).to_lists()
    [[], [], []]
    """
    if not isinstance(values, Ragged):
        return np.zeros((rows, *values.shape[1:]), values.dtype)
    weights = None if values.weights is None else values.weights[:0]
    return Ragged(values.values[:0], np.zeros(rows + 1, np.int64), weights)


def as_bags(ids: npt.NDArray[Any]) -> Ragged:
    """Return single ids as bags of one; a missing one is an empty bag.

    Rows are (batch,), and -1 is missing; raw ids are (batch, 3): two halves, and 0 where one is missing.
    """
    is_raw = ids.ndim == 2
    there = ids[:, 2] != 0 if is_raw else ids >= 0
    values = np.ascontiguousarray(ids[there, :2]).view(np.int64)[:, 0] if is_raw else ids[there]
    return Ragged(values, offsets_of(there))


def join(parts: Sequence[Values]) -> Values:
    """Return all rows of some columns, one after the other; single ids join bags as bags of one.

    >>> join([np.array([7]), Ragged(np.array([1, 2]), np.array([0, 2, 2]))]).to_lists()
    [[7], [1, 2], []]
    """
    if any(isinstance(part, Ragged) for part in parts):
        parts = [part if isinstance(part, Ragged) else as_bags(part) for part in parts]
    if not isinstance(parts[0], Ragged):
        return np.concatenate(parts)
    ends = np.cumsum([0, *(part.offsets[-1] for part in parts)])
    offsets = [part.offsets[:-1] + end for part, end in zip(parts, ends, strict=False)]
    weights = None if parts[0].weights is None else np.concatenate([part.weights for part in parts])
    return Ragged(np.concatenate([part.values for part in parts]), np.concatenate([*offsets, ends[-1:]]), weights)


def check_same_lengths(groups: Iterable[tuple[str, Sequence[str]]], batch: Batch) -> None:
    """Raise `DataError` unless the sequences of each group, given by its name and features, agree in length.

    >>> from sparrow.embedding import Ragged
    >>> items, prices = Ragged(np.array([1, 2]), np.array([0, 1, 2])), Ragged(np.array([[1.0]]), np.array([0, 1, 1]))
    >>> batch = Batch(ids={"items": items}, sequences={"prices": prices})
    >>> check_same_lengths([("history", ["items", "prices"])], batch)
    Traceback (most recent call last):
    sparrow.errors.DataError: group 'history': the sequences 'items' and 'prices' must have one length, but ...
    """
    for group, (first, *others) in groups:
        expected = _offsets(batch, first)
        for name in others:
            found = _offsets(batch, name)
            if not np.array_equal(expected, found):
                a, b = np.diff(expected), np.diff(found)
                at = int(np.flatnonzero(a != b)[0])
                raise DataError(
                    f"group '{group}': the sequences '{first}' and '{name}' must have one length, but an example has "
                    f"{a[at]} elements of '{first}' and {b[at]} of '{name}'; correct the data, or put them into "
                    "groups of their own"
                )


def _offsets(batch: Batch, name: str) -> Any:
    parts: tuple[dict[str, Any], ...] = (batch.ids, batch.sequences, batch.labels)
    return next(part[name].offsets for part in parts if name in part)
