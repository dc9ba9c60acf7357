"""Sequences that go side by side have one length in every example."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sparrow.data.batch import Batch
from sparrow.data.errors import DataError


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


def _offsets(batch: Batch, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    part = next(part for part in (batch.ids, batch.sequences, batch.labels) if name in part)
    values: Any = part[name]
    offsets: np.ndarray[tuple[int], np.dtype[np.int64]] = values.offsets
    return offsets
