"""Rows sorted by group and score, counted at every distinct score, for exact AUC and exact PR-AUC."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparrow.metrics.order import Codes, float_codes, order_by, running_before, starts
from sparrow.metrics.rows import Columns

Counts = NDArray[Any]  # int64 without weights, float64 with


class ScoreCounts(NamedTuple):
    """The weight of the rows with one score in one group; by group, then ascending score."""

    positive: Counts  # (scores,)
    negative: Counts  # (scores,)
    group_starts: NDArray[np.int64]  # (groups,) where a group's scores begin


def count_scores(columns: Columns, groups: Codes | None = None) -> ScoreCounts:
    """Sorts the rows; ``groups`` are codes below 2**31, or None for one group."""
    scores = float_codes(columns["prediction"])
    if "weight" not in columns:
        return _count_rows(scores, columns["label"], groups)
    if groups is None:
        groups = np.zeros(scores.size, np.uint32)
    order = order_by(groups, scores)
    groups = groups[order]
    weight = columns["weight"][order].astype(np.float64)
    positive = np.where(columns["label"][order], weight, 0.0)
    first = starts(groups, scores[order])
    return ScoreCounts(
        np.add.reduceat(positive, first), np.add.reduceat(weight - positive, first), starts(groups[first])
    )


def _count_rows(scores: Codes, labels: NDArray[np.bool_], groups: Codes | None) -> ScoreCounts:
    """Return the same without weights: group, score and label fit into 64 bits, so one plain sort does everything."""
    packed = np.zeros(scores.size, np.uint64) if groups is None else groups.astype(np.uint64)
    packed <<= np.uint64(32)
    packed |= scores
    packed <<= np.uint64(1)
    packed |= labels
    packed.sort()
    positive_before = np.zeros(scores.size + 1, np.int64)
    np.cumsum(packed.astype(np.uint8) & np.uint8(1), out=positive_before[1:])
    packed >>= np.uint64(1)
    first = starts(packed)
    positive = np.diff(positive_before[first], append=positive_before[-1])
    rows = np.diff(first, append=scores.size)
    group_starts = starts(packed[first] >> np.uint64(32))
    return ScoreCounts(positive, rows - positive, group_starts)


class GroupAreas(NamedTuple):
    """Per group: the weight of its positive and negative rows, and the area under its ROC curve (or NaN)."""

    positive: NDArray[np.float64]
    negative: NDArray[np.float64]
    area: NDArray[np.float64]


def roc_areas(counts: ScoreCounts) -> GroupAreas:
    """``area = sum over positive rows of (negative weight below + half of that tied) / (positive * negative)``."""
    below = running_before(counts.negative, counts.group_starts)
    below *= 2
    below += counts.negative
    below *= counts.positive
    twice_area, positive, negative = (
        np.add.reduceat(column, counts.group_starts).astype(np.float64)
        for column in (below, counts.positive, counts.negative)
    )
    pairs = positive * negative
    area = np.full(pairs.shape, np.nan)
    np.divide(twice_area, 2 * pairs, out=area, where=pairs > 0)
    return GroupAreas(positive, negative, area)
