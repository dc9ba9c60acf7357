"""Labels of several candidates as arrays of one shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.embedding import Ragged


def padded_labels(labels: Any, most: int | None) -> npt.NDArray[np.float32]:
    """Return labels as a step takes them: lists as ``(batch, most)``, with zeros behind each.

    >>> padded_labels(Ragged(np.array([1, 0, 1], np.float32), np.array([0, 2, 3])), 2).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    if not isinstance(labels, Ragged) or most is None:
        held: npt.NDArray[np.float32] = labels
        return held
    offsets = np.asarray(labels.offsets)
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    made = np.zeros((len(offsets) - 1, most), np.float32)
    made[rows, np.arange(len(rows)) - offsets[rows]] = labels.values
    return made
