"""Lines of a chart that lie on each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

NEAR: Final = 1.5
"""Lines that are nowhere further apart than this, in pixels, look like one."""

SHARED: Final = 0.9
"""The share of the width that two lines must have in common."""

Line = Sequence[tuple[float, float]]


def coinciding(lines: Sequence[Line]) -> dict[int, int]:
    """Return, for each line that lies on a line before it, the first such line.

    >>> coinciding([[(0, 5), (9, 8)], [(0, 5), (9, 2)], [(0, 5.5), (3, 6), (9, 8)]])
    {2: 0}
    """
    kept = [sorted(place for place in line if math.isfinite(place[0] + place[1])) for line in lines]
    found: dict[int, int] = {}
    for later, line in enumerate(kept):
        for earlier in range(later):
            if earlier not in found and _lies_on(line, kept[earlier]):
                found[later] = earlier
                break
    return found


def _lies_on(line: Line, other: Line) -> bool:
    """Return whether two lines share nearly all of their width and stay near each other there."""
    if len(line) < 2 or len(other) < 2:
        return False
    (x, y), (across, up) = (np.array(places).T for places in (line, other))
    low, high = max(x[0], across[0]), min(x[-1], across[-1])
    if high - low < SHARED * max(x[-1] - x[0], across[-1] - across[0]):
        return False
    places = np.unique(np.clip(np.concatenate([x, across]), low, high))
    return bool(np.abs(np.interp(places, across, up) - np.interp(places, x, y)).max() <= NEAR)
