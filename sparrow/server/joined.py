"""Batches of several requests as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparrow.data import Batch, join
from sparrow.embedding import Ragged

PARTS = ("ids", "numbers", "sequences")
"""The parts of a batch that requests have."""


def kinds(batch: Batch) -> tuple[Any, ...]:
    """Return a key that is the same for batches that can be joined.

    A feature's ids are ragged or not, weighted or not, as the column of the request was.
    """
    return tuple(
        (name, type(values), values.weights is None) if isinstance(values, Ragged) else (name, values.dtype.num)
        for part in PARTS
        for name, values in getattr(batch, part).items()
    )


def joined(batches: Sequence[Batch]) -> Batch:
    """Return the rows of all batches, which have the same `kinds`.

    >>> import numpy as np
    >>> one, two = (Batch(ids={"item": np.array(ids)}) for ids in ([1, 2], [3]))
    >>> joined([one, two]).ids["item"].tolist()
    [1, 2, 3]
    """
    if len(batches) == 1:
        return batches[0]
    parts: Any = {
        part: {name: join([getattr(batch, part)[name] for batch in batches]) for name in getattr(batches[0], part)}
        for part in PARTS
    }
    return Batch(**parts)
