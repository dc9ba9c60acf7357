"""Counting pairs in the same order, all of them, in O(n log n), for exact XAUC.

Rows are numbered by (group, label ascending, prediction descending). Of two rows ``i < j`` in that numbering, the
labels differ and the predictions agree with them exactly when ``p_i < p_j`` (within a group). So the question
is, for each row, how much weight with a lower number has a lower prediction. It is answered by undoing a merge
sort, level by level, over whole arrays at once: begin with all rows in order of prediction; at each level every
block of rows is split, stably, into the lower and the upper half of its numbers; a row of the upper half has met
exactly those rows of the lower half that come before it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparrow.metrics.order import Codes, float_codes, order_by, running_before, starts
from sparrow.metrics.rows import Columns


class PairCounts(NamedTuple):
    """Per group: the weight of the pairs in the same order, of all pairs, and of the rows; and the rows' number."""

    concordant: NDArray[np.float64]
    pairs: NDArray[np.float64]
    weight: NDArray[np.float64]
    rows: NDArray[np.int64]


def count_pairs(columns: Columns, groups: Codes | None = None) -> PairCounts:
    """``concordant = sum w_i w_j [(y_i - y_j)(p_i - p_j) > 0]`` and ``pairs = sum w_i w_j``, over ``i < j``.

    Ties, in label or prediction, are not concordant. A pair weighs the product of its rows' weights.
    """
    predictions, labels = float_codes(columns["prediction"]), float_codes(columns["label"])
    size = predictions.size
    if groups is None:
        groups = np.zeros(size, np.uint32)
    number_to_row = order_by(groups, labels, ~predictions)
    predictions, groups = predictions[number_to_row], groups[number_to_row]
    weights = columns["weight"][number_to_row].astype(np.float64) if "weight" in columns else None
    # By prediction; later groups first, and of equal predictions the higher number first: neither is "met".
    by_prediction = size - 1 - order_by(~groups[::-1], predictions[::-1])
    met = lower_and_earlier(by_prediction, weights)
    first = starts(groups)
    rows = np.diff(first, append=size)
    if weights is None:
        pairs = rows * (rows - 1.0) / 2
        return PairCounts(np.add.reduceat(met, first).astype(np.float64), pairs, rows.astype(np.float64), rows)
    before = running_before(weights, first)  # the weight of the group's rows with a lower number
    concordant, pairs, weight = (
        np.add.reduceat(column, first) for column in (met * weights, before * weights, weights)
    )
    return PairCounts(concordant, pairs, weight, rows)


def lower_and_earlier(sequence: NDArray[np.int64], weights: NDArray[np.float64] | None) -> NDArray[Any]:
    """For each number ``k``: how many smaller numbers come before it in ``sequence``, a permutation.

    With ``weights`` (by number), the sum of their weights instead of their count.

    >>> lower_and_earlier(np.array([1, 0, 3, 2]), None)
    array([0, 0, 2, 2])
    """
    size = sequence.size
    numbers = sequence.astype(np.uint32)
    met = np.zeros(size, np.int64 if weights is None else np.float64)
    for bit in reversed(range(max(size - 1, 0).bit_length())):
        half, block = 1 << bit, 1 << (bit + 1)
        # Here the block that holds the numbers [b * block, (b + 1) * block) occupies just these places.
        is_upper = (numbers & np.uint32(half)) != 0
        upper, lower = numbers[is_upper], numbers[~is_upper]
        if weights is None:
            # Lower rows before a place: all rows before, less the upper ones; less those of earlier blocks.
            places = np.flatnonzero(is_upper)
            met[upper] += places - np.arange(upper.size) - (places >> (bit + 1)) * half
        else:
            of_lower = np.where(is_upper, 0.0, weights[numbers])
            met[upper] += running_before(of_lower, np.arange(0, size, block))[is_upper]
        full = size // block * half  # halves of whole blocks; a last, partial block follows
        whole = numbers[: 2 * full].reshape(-1, 2, half)
        whole[:, 0] = lower[:full].reshape(-1, half)
        whole[:, 1] = upper[:full].reshape(-1, half)
        numbers[2 * full :] = np.concatenate([lower[full:], upper[full:]])
    return met
