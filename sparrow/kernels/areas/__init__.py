"""Areas under the ROC curves of groups of rows, compiled; where there is no compiler, `sparrow.metrics` has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.kernels.native.host import address, host_library

Floats = npt.NDArray[np.float64]

COLUMNS = {"prediction": np.float32, "label": np.bool_, "weight": np.float32, "key_low": np.uint64}
"""The columns of rows, with their types; ``weight`` may be missing."""


class GroupAreas(NamedTuple):
    """Per group: the weight of its positive and negative rows, and the area under its ROC curve (or NaN)."""

    positive: Floats
    negative: Floats
    area: Floats


def group_areas(chunks: Sequence[Mapping[str, Any]], parts: int, threads: int) -> list[GroupAreas] | None:
    """Return the areas of groups in parts, by the owners of keys, each in the order of its keys.

    None where NumPy must do it: there is no compiler or no memory, or the rows have other columns than `COLUMNS`.
    """
    for chunk in chunks:
        if any(name not in COLUMNS or column.dtype != COLUMNS[name] for name, column in chunk.items()):
            return None
    loaded = host_library("areas")
    if loaded is None:
        return None
    kept = [{name: np.ascontiguousarray(column) for name, column in chunk.items()} for chunk in chunks]
    rows = sum(len(chunk["label"]) for chunk in kept)
    described = [[*(address(chunk.get(name)) for name in COLUMNS), len(chunk["label"])] for chunk in kept]
    starts, groups = np.zeros((2, parts), np.int64)
    made = GroupAreas(*np.empty((3, rows)))
    sizes = len(chunks), parts, threads
    outputs = starts, groups, made.area, made.positive, made.negative
    if not loaded.sparrow_group_areas(np.array(described, np.int64), *sizes, *outputs):
        return None
    return [GroupAreas(*(own[at : at + count] for own in made)) for at, count in zip(starts, groups, strict=True)]
