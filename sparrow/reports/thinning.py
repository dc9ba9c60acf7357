"""Thousands of points as a few hundred that look the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

MOST: Final = 1024
"""Points of a line that are drawn: about two for each pixel of a chart."""


def thinned(values: Sequence[float], most: int = MOST) -> list[int]:
    """Which points to keep: the first, the last, and the lowest and highest of each stretch, so that no peak is lost.

    >>> thinned([0.0, 1.0, 9.0, 1.0, 0.0, 1.0, 1.0, 2.0], most=4)
    [0, 2, 4, 7]
    >>> thinned([1.0, 2.0])
    [0, 1]
    """
    count = len(values)
    if count <= most:
        return list(range(count))
    stretches = most // 2 - 1
    kept = {0, count - 1}
    for stretch in range(stretches):
        inside = range(1 + stretch * (count - 2) // stretches, 1 + (stretch + 1) * (count - 2) // stretches)
        finite = [index for index in inside if math.isfinite(values[index])] or list(inside[:1])
        kept |= {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)}
    return sorted(kept)
