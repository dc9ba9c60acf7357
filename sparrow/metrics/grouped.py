"""Grouped AUC: one exact AUC per group, averaged. Also the base of all metrics that are made group by group."""

from __future__ import annotations

import abc
import concurrent.futures
import dataclasses
import os
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from sparrow.kernels.areas import group_areas
from sparrow.metrics.exact import BinaryRowMetric, count_scores, roc_areas
from sparrow.metrics.inputs import NO_ROWS
from sparrow.metrics.keys import owner
from sparrow.metrics.order import Codes, key_codes, stable_order
from sparrow.metrics.protocol import Result, register_metric
from sparrow.metrics.rows import Columns, RowMetric, RowState, concatenate, length

Summary = dict[str, float]  # adds up over disjoint sets of groups
GroupValues = tuple[NDArray[np.float64], NDArray[np.float64]]

LARGE: Final = 2**16
"""Rows from which groups are summarized in `PARTS`."""
PARTS: Final = 16
"""Any number of threads adds the same parts in the same order."""


class GroupedMetric(RowMetric):
    """A weighted mean over groups, left-out groups counted.

    A group's number needs all its rows in one place. Processes therefore send every row to the owner of its
    key (`partition`), summarize the groups they own, and add the summaries: exact, and each row travels once.
    """

    needs_groups = True
    _left_out: ClassVar[str]  # why groups are left out: the end of the sentence "every group ..."

    @abc.abstractmethod
    def _group_values(self, columns: Columns, groups: Codes) -> GroupValues:
        """Per group: its number, NaN where it has none, and its weight in the mean."""

    def summarize(self, state: RowState) -> Summary:
        """Summarize the rows for `finish`; summaries of disjoint groups add up."""
        faults = dict(zip(("fault_0", "fault_1", "fault_2"), map(float, state.faults), strict=True))
        parts = [_summary(*values) for values in self._in_parts(state.chunks)]
        return {**{name: sum(part[name] for part in parts) for name in parts[0]}, **faults}

    def _in_parts(self, chunks: tuple[Columns, ...]) -> list[GroupValues]:
        """Return the numbers of groups and their weights, in parts."""
        columns = concatenate(chunks)
        if length(columns) < LARGE:
            return [self._of_part(columns)]
        # Parts of all rows of some groups stay in the cache while they are sorted, each in a thread of its own.
        with concurrent.futures.ThreadPoolExecutor(PARTS, "sparrow-metrics") as pool:
            owners = np.concatenate(list(pool.map(_owners, chunks)))

            def values(part: int) -> GroupValues:
                rows = np.flatnonzero(owners == part)
                return self._of_part({name: column[rows] for name, column in columns.items()})

            return list(pool.map(values, range(PARTS)))

    def _of_part(self, columns: Columns) -> GroupValues:
        if not length(columns):
            return np.zeros(0), np.zeros(0)
        return self._group_values(columns, key_codes(columns["key_low"], columns.get("key_high")))

    def finish(self, summary: Summary) -> Result:
        """Return the result of a (total) summary."""
        faults = np.array([summary[f"fault_{kind}"] for kind in range(3)])
        details = {key: int(summary[key]) for key in ("groups", "left_out_groups")}
        if faults.any():
            return Result(float("nan"), self.fault_reason(faults), details)
        if summary["weight"] > 0:
            return Result(summary["total"] / summary["weight"], None, details)
        why = f"every group {self._left_out}" if details["left_out_groups"] else NO_ROWS
        return Result(float("nan"), f"{self.name}: {why}", details)

    def evaluate(self, state: RowState) -> Result:
        return self.finish(self.summarize(state))

    def partition(self, state: RowState, processes: int) -> list[RowState]:
        """Return the state in ``processes`` parts, each with all the rows of the keys that it owns."""
        columns = concatenate(state.chunks)
        owners = owner(columns["key_low"], columns.get("key_high"), processes).astype(np.uint32)
        order = stable_order(owners)
        cuts = np.cumsum(np.bincount(owners, minlength=processes))[:-1]
        split = {name: np.split(column[order], cuts) for name, column in columns.items()}
        parts = [{name: pieces[part] for name, pieces in split.items()} for part in range(processes)]
        faults = [state.faults, *(np.zeros_like(state.faults) for _ in range(processes - 1))]
        return [RowState((part,), fault) for part, fault in zip(parts, faults, strict=True)]


def _summary(values: NDArray[np.float64], weights: NDArray[np.float64]) -> Summary:
    defined = ~np.isnan(values)
    return {
        "total": float((values[defined] * weights[defined]).sum()),
        "weight": float(weights[defined].sum()),
        "groups": float(defined.sum()),
        "left_out_groups": float((~defined).sum()),
    }


def _owners(columns: Columns) -> NDArray[np.uint8]:
    """Return the part that each row belongs to."""
    return owner(columns["key_low"], columns.get("key_high"), PARTS).astype(np.uint8)


@register_metric("grouped_auc")
@dataclasses.dataclass(frozen=True)
class GroupedAUC(GroupedMetric, BinaryRowMetric):
    """The mean over groups (users, sessions, ...) of the exact AUC within each, ties counted as half.

    Groups with one class only have no AUC: they are left out, and counted in `details`. ``average`` weighs a group
    by 1 ("uniform"), by the weight of its rows ("impressions"), or of its positive rows ("clicks").

    Groups are any hashable keys. Keeps every row on the host (13 bytes for float32 scores and integer keys, 21
    for others): feed it outside of ``jax.jit``. One sort for all groups, O(n log n) whatever their sizes.

    Reference: H. Zhu et al., "Optimized cost per click in Taobao display advertising", 2017.

    >>> metric = GroupedAUC()
    >>> state = metric.update(metric.init(), [0.1, 0.2, 0.3, 0.4, 0.5], [1, 0, 0, 1, 1], groups=[7, 7, "b", "b", 9])
    >>> metric.compute(state), metric.details(state)
    (0.5, {'groups': 2, 'left_out_groups': 1})
    """

    average: Literal["uniform", "impressions", "clicks"] = "uniform"

    _left_out = "has one class only"

    def _in_parts(self, chunks: tuple[Columns, ...]) -> list[GroupValues]:
        made = None
        if sum(map(length, chunks)) >= LARGE:
            made = group_areas(chunks, self.average, PARTS, len(os.sched_getaffinity(0)))
        return super()._in_parts(chunks) if made is None else made

    def _group_values(self, columns: Columns, groups: Codes) -> GroupValues:
        areas = roc_areas(count_scores(columns, groups))
        shares = {
            "uniform": np.ones_like(areas.area),
            "impressions": areas.positive + areas.negative,
            "clicks": areas.positive,
        }
        return areas.area, shares[self.average]
