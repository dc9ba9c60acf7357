"""A noisy line, smoothed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

LEAST: Final = 20
"""Lines of fewer points are shown as they are."""


def smoothed(values: Sequence[float]) -> list[float] | None:
    """Return the mean around each point, whose weights fall by half within a fiftieth of the line; None: it is short.

    ::

        mean_i = Σ_j  w^|i-j| x_j  /  Σ_j  w^|i-j|        w = 1/2 ^ (1 / max(2, points / 50))

    Values that are not finite are left out and stay gaps.

    >>> smoothed([1.0] * 19) is None, round(smoothed([0.0, 2.0] * 20)[20], 2)
    (True, 0.97)
    """
    finite = [index for index, value in enumerate(values) if math.isfinite(value)]
    if len(finite) < LEAST:
        return None
    decay = 0.5 ** (1 / max(2.0, len(finite) / 50))
    kept = [values[index] for index in finite]
    before, after = _sums(kept, decay), _sums(kept[::-1], decay)[::-1]
    means = [math.nan] * len(values)
    for index, value, left, right in zip(finite, kept, before, after, strict=True):
        means[index] = (left[0] + right[0] - value) / (left[1] + right[1] - 1)
    return means


def _sums(values: Sequence[float], decay: float) -> list[tuple[float, float]]:
    """Return the weighted sum of the values up to each point, and the sum of weights."""
    total = weight = 0.0
    sums = []
    for value in values:
        total, weight = decay * total + value, decay * weight + 1
        sums.append((total, weight))
    return sums
