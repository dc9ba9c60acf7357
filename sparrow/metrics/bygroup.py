"""Ranking metrics over flat rows: the rows of one group are one list. Keeps every row, on the host."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from sparrow.metrics.grouped import GroupedMetric
from sparrow.metrics.inputs import NOT_NEGATIVE, Domain
from sparrow.metrics.order import Codes, float_codes, order_by, starts
from sparrow.metrics.ranking import Lists, RankingMetric
from sparrow.metrics.records import register_metric
from sparrow.metrics.rows import Columns


@register_metric("by_group")
@dataclasses.dataclass(frozen=True)
class ByGroup(GroupedMetric):
    """A ranking metric whose lists are the rows of each group: lists of any length, rows in any order and batch.

    Weights are per row; a list weighs what its heaviest row does, so give the rows of a list the same weight, or
    none. Groups without a relevant row are left out, and counted. Keeps every row on the host: feed it outside of
    ``jax.jit``.

    >>> from sparrow.metrics.ranking import HitRateAtK
    >>> metric = ByGroup(HitRateAtK(top_k=1))
    >>> state = metric.update(metric.init(), [0.9, 0.1, 0.3, 0.4], [1, 0, 1, 0], groups=["a", "a", "b", "b"])
    >>> metric.compute(state)
    0.5
    """

    metric: RankingMetric

    def __post_init__(self) -> None:
        if not isinstance(self.metric, RankingMetric):
            raise ValueError(f"ByGroup: metric must be a ranking metric, such as NDCGAtK(); got {self.metric!r}")

    @property
    def name(self) -> str:
        """The inner metric's name, by group."""
        return f"ByGroup({self.metric.name})"

    @property
    def _label_domain(self) -> Domain:
        return NOT_NEGATIVE

    def _group_values(self, columns: Columns, groups: Codes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        lists = rank_rows(columns, groups)
        value, share = self.metric.list_values(lists, np)
        if "weight" in columns:
            order = order_by(groups)
            share = share * np.maximum.reduceat(columns["weight"][order], starts(groups[order]))
        return np.where(share > 0, value, np.nan), share

    def _left_out(self) -> str:
        return "is without a relevant row"


def rank_rows(columns: Columns, groups: Codes) -> Lists:
    """List as runs of rows, by group, then descending score, then ascending relevance."""
    scores, relevance = float_codes(columns["prediction"]), columns["label"].astype(np.float64)
    relevance_codes = float_codes(columns["label"])
    order = order_by(groups, ~scores, relevance_codes)
    first = starts(groups[order])
    sizes = np.diff(first, append=order.size)
    ranked = relevance[order]
    running = np.cumsum(ranked > 0)
    before: NDArray[np.int64] = np.repeat(running[first] - (ranked[first] > 0), sizes)
    return Lists(
        relevance=ranked,
        ideal=relevance[order_by(groups, ~relevance_codes)],
        rank=np.arange(order.size) - np.repeat(first, sizes) + 1.0,
        hits=running - before,
        per_list=lambda x: np.add.reduceat(x.astype(np.float64), first),
    )
