"""Rows sorted by group and score, counted at every distinct score: what exact AUC and exact PR-AUC are made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparrow.metrics.order import Codes, float_codes, order_by, starts
from sparrow.metrics.rows import Columns

Counts = NDArray[Any]  # int64 without weights, float64 with


class ScoreCounts(NamedTuple):
    """One entry per run of rows with the same group and the same score, by group, then ascending score.

    ``positive`` and ``negative`` are running totals over all rows up to the end of the run (groups included);
    ``group_ends`` are the last runs of the groups.
    """

    positive: Counts  # (runs,)
    negative: Counts  # (runs,)
    group_ends: NDArray[np.int64]  # (groups,)


def count_scores(columns: Columns, groups: Codes | None = None) -> ScoreCounts:
    """Sorts the rows; ``groups`` are codes below 2**31, or None for one group."""
    scores = float_codes(columns["prediction"])
    if "weight" not in columns:
        return _count_rows(scores, columns["label"], groups)
    order = order_by(scores) if groups is None else order_by(groups, scores)
    weight = columns["weight"][order].astype(np.float64)
    positive = np.where(columns["label"][order], weight, 0.0)
    sorted_groups = np.zeros(order.size, np.uint32) if groups is None else groups[order]
    run_ends = ends(starts(sorted_groups, scores[order]), order.size)
    return ScoreCounts(
        np.cumsum(positive)[run_ends],
        np.cumsum(weight - positive)[run_ends],
        ends(starts(sorted_groups[run_ends]), run_ends.size),
    )


def _count_rows(scores: Codes, labels: NDArray[np.bool_], groups: Codes | None) -> ScoreCounts:
    """The same without weights: group, score and label fit into 64 bits, so one plain sort does everything."""
    packed = np.zeros(scores.size, np.uint64) if groups is None else groups.astype(np.uint64)
    packed <<= np.uint64(32)
    packed |= scores
    packed <<= np.uint64(1)
    packed |= labels
    packed.sort()
    positive = np.cumsum(packed.astype(np.uint8) & np.uint8(1), dtype=np.int64)
    packed >>= np.uint64(1)
    run_ends = ends(starts(packed), packed.size)
    at_ends = positive[run_ends]
    packed >>= np.uint64(32)
    return ScoreCounts(at_ends, run_ends + 1 - at_ends, ends(starts(packed[run_ends]), run_ends.size))


class GroupAreas(NamedTuple):
    """Per group: the weight of its positive and negative rows, and the area under its ROC curve (or NaN)."""

    positive: NDArray[np.float64]
    negative: NDArray[np.float64]
    area: NDArray[np.float64]


def roc_areas(counts: ScoreCounts) -> GroupAreas:
    """``area = sum over positive rows of (negative weight below + half of that tied) / (positive * negative)``."""
    group_ends = counts.group_ends
    run_positive, run_negative = differences(counts.positive), differences(counts.negative)
    below = counts.negative - run_negative
    twice = run_positive * (2 * below + run_negative)  # of rows and pairs over all groups before it, too
    positive, negative = differences(counts.positive[group_ends]), differences(counts.negative[group_ends])
    before = counts.negative[group_ends] - negative
    twice_area = differences(np.cumsum(twice)[group_ends]) - 2 * before * positive
    pairs = positive.astype(np.float64) * negative
    area = np.full(pairs.shape, np.nan)
    np.divide(twice_area, 2 * pairs, out=area, where=pairs > 0)
    return GroupAreas(positive.astype(np.float64), negative.astype(np.float64), area)


def ends(start: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The last index of each run that begins at ``start``."""
    return np.append(start[1:], size)[: start.size] - 1


def differences(running: Counts) -> Counts:
    """The terms of a running total."""
    return np.diff(running, prepend=running.dtype.type(0))
