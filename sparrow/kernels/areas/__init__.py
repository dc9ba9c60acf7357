"""Areas under the ROC curves of groups of rows, compiled; where there is no compiler, `sparrow.metrics` has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.kernels import feed
from sparrow.kernels.native.host import address, host_library

AVERAGES: Final = ("uniform", "impressions", "clicks")
"""The weight of a group: 1, that of its rows, or that of its positive rows."""
LEAST: Final = 2**12
"""Rows of a batch from which `binary_rows` is compiled code."""
Floats = npt.NDArray[np.float64]

COLUMNS: Final = {"prediction": np.float32, "label": np.bool_, "weight": np.float32, "key_low": np.uint64}
"""The columns of rows, with their types; ``weight`` may be missing."""


def group_areas(
    chunks: Sequence[Mapping[str, Any]], average: str, parts: int, threads: int
) -> list[tuple[Floats, Floats]] | None:
    """Return the areas of groups and their weights in the mean, in parts by the owners of keys, in the order of keys.

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
    made = feed.pool.empty((rows, 2), np.float64)  # of a group as many bytes as of a row
    sizes = len(chunks), parts, threads, AVERAGES.index(average)
    if not loaded.sparrow_group_areas(np.array(described, np.int64), *sizes, made, starts, groups):
        return None
    found = [made[at : at + count] for at, count in zip(starts, groups, strict=True)]
    return [(own[:, 0], own[:, 1]) for own in found]


def binary_rows(
    predictions: Any, labels: Any, weights: Any, keys: Any
) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.int64]] | None:
    """Return copies of the rows that count, as `COLUMNS`, and the faults by kind, as exact metrics have them.

    None where NumPy must do it: rows are few, or have other types than float32, and int64 for keys.
    """
    given = {"prediction": predictions, "label": labels, "weight": weights, "key_low": keys}
    given = {name: column for name, column in given.items() if column is not None}
    shape = np.shape(predictions)
    if len(shape) != 1 or shape[0] < LEAST or "label" not in given:
        return None
    for name, column in given.items():
        dtype = np.int64 if name == "key_low" else np.float32
        if not isinstance(column, np.ndarray) or column.dtype != dtype or column.shape != shape:
            return None
    loaded = host_library("areas")
    if loaded is None:
        return None
    made = {name: feed.pool.empty(shape, COLUMNS[name]) for name in given}
    faults = np.zeros(3, np.int64)
    inputs = [None if name not in given else np.ascontiguousarray(given[name]) for name in COLUMNS]
    kept = loaded.sparrow_binary_rows(*inputs, shape[0], *(made.get(name) for name in COLUMNS), faults)
    few = 2 * kept < shape[0]
    return {name: column[:kept].copy() if few else column[:kept] for name, column in made.items()}, faults
