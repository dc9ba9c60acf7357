"""Charts of two towers: how often the own item is among the first K, and the metrics at several K."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from sparrow.reports.axis import Axis
from sparrow.reports.chart import Chart, Series
from sparrow.reports.recorded import Entry, RecordedRun

AT_K: Final = re.compile(r"(?P<before>.*)_at_(?P<k>\d+)(?P<after>\D*)")
"""Names of metrics at K, such as recall_at_20, match/ndcg_at_5 or recall_at_10(user)."""


def rank_charts(runs: Sequence[str], task: str, suffix: str, held: Mapping[int, Mapping[str, Any]]) -> list[Chart]:
    """Return the charts of one task; the arguments are those of `curve_charts`."""
    several = len(runs) > 1
    series = []
    for index, counts in held.items():
        rank, share = within(counts)
        series.append(Series(runs[index] if several else "own item", rank, share, color=index))
    only = next(iter(held.values()))
    candidates = only["candidates"]
    if not several:
        ranks = [rank for rank in series[0].x if rank <= candidates] or [1.0]
        series.append(Series("by chance", ranks, [rank / candidates for rank in ranks], color=1))
    return [
        Chart(
            f"Own item among the first K{suffix}",
            series,
            Axis.around([x for line in series for x in line.x], "K", log=True),
            Axis.around([0.0, 1.0], "share of rows", from_zero=True),
            note=f"ranked among the {candidates:,.0f} items of its batch, not among all items",
            value="" if several else f"median rank {median(only):,}",
            id=f"ranks-{task}",
        )
    ]


def within(counts: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """Return ranks, and the share of rows whose own item is at most there.

    >>> within({"rank": [1, 3], "weight": [2.0, 6.0], "candidates": 4.0})
    ([1.0, 3.0, 4.0], [0.25, 1.0, 1.0])
    """
    rank, weight = (np.asarray(counts[name], np.float64) for name in ("rank", "weight"))
    share = np.cumsum(weight) / weight.sum()
    last = [float(counts["candidates"])] if counts["candidates"] > rank[-1] else []
    first = [] if rank[0] == 1 else [(1.0, 0.0)]
    x = [*(x for x, _ in first), *rank.tolist(), *last]
    return x, [*(y for _, y in first), *share.tolist(), *[1.0] * len(last)]


def median(counts: Mapping[str, Any]) -> int:
    """Return the median rank."""
    share = np.cumsum(counts["weight"]) / np.sum(counts["weight"])
    return int(counts["rank"][int(np.searchsorted(share, 0.5))])


def at_k_charts(runs: Sequence[RecordedRun]) -> list[Chart]:
    """Return the metrics of the shown evaluation at several K: a line for each metric that has at least two."""
    series: list[Series] = []
    for run in runs:
        for name, points in at_k(run.best or (run.evaluations[-1] if run.evaluations else None)).items():
            if len(points) > 1:
                label = f"{run.name}, {name}" if len(runs) > 1 else name
                x, y = zip(*points, strict=True)
                series.append(Series(label, list(map(float, x)), list(y), color=len(series), points=True))
    if not series:
        return []
    across = Axis.around([x for line in series for x in line.x], "K", log=True)
    up = Axis.around([y for line in series for y in line.y], "value", from_zero=True)
    return [Chart("Metrics by K", series, across, up, legend=True, id="at-k")]


def at_k(entry: Entry | None) -> dict[str, list[tuple[int, float]]]:
    """Return the values by K of each metric at K.

    >>> at_k(Entry(1, 0.0, {"recall_at_20": 0.4, "recall_at_5": 0.1, "mrr": 0.2}))
    {'recall': [(5, 0.1), (20, 0.4)]}
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for name, value in (entry.values if entry is not None else {}).items():
        if match := AT_K.fullmatch(name):
            found.setdefault(match["before"] + match["after"], []).append((int(match["k"]), value))
    return {name: sorted(points) for name, points in found.items()}
