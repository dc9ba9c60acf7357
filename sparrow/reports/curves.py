"""Charts of the quality of predictions, from counted rows.

ROC, precision by recall and calibration of a task with two labels; labels and errors by prediction of a task that
predicts a number; ranks of the own item of two towers, and metrics at several K.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.reports.axis import Axis
from sparrow.reports.chart import Chart, Series
from sparrow.reports.formatting import percent, precise
from sparrow.reports.recorded import Entry, RecordedRun

GROUPS: Final = 20
"""Points of a curve by prediction: each stands for as many rows as the others."""
GROUPED: Final = f"each point: one of up to {GROUPS} groups of equal weight, by prediction"
SCORE_BARS: Final = 20
BARS: Final = 30
OUTSIDE: Final = 0.005
"""The share of rows at either end that bars of numbers leave out."""
AT_K: Final = re.compile(r"(?P<before>.*)_at_(?P<k>\d+)(?P<after>\D*)")
"""Names of metrics at K, such as recall_at_20, match/ndcg_at_5 or recall_at_10(user)."""

Floats = npt.NDArray[Any]


def grouped(weight: Floats, *sums: Floats) -> tuple[Floats, list[Floats]]:
    """Return the weight of groups of neighboring bins, and the mean of each of ``sums`` in them."""
    middle = np.cumsum(weight) - weight / 2
    group = np.minimum((GROUPS * middle / weight.sum()).astype(np.int64), GROUPS - 1)
    rows, *totals = (np.bincount(group, column, GROUPS) for column in (weight, *sums))
    kept = rows > 0
    return rows[kept], [total[kept] / rows[kept] for total in totals]


@dataclasses.dataclass(frozen=True)
class Scored:
    """Rows by score, ascending.

    >>> scored = Scored(np.array([0.2, 0.4, 0.6]), np.array([1.0, 0.0, 3.0]), np.array([4.0, 2.0, 0.0]))
    >>> round(scored.roc_area, 4), round(scored.average_precision, 4)
    (0.8333, 0.85)
    """

    score: Floats
    positive: Floats
    negative: Floats

    @classmethod
    def of(cls, held: Mapping[str, Any]) -> Scored:
        """Return the rows of a task of curves.json."""
        return cls(*(np.asarray(held[field.name], np.float64) for field in dataclasses.fields(cls)))

    @property
    def _counts(self) -> dict[str, Floats]:
        return {"positive": self.positive, "negative": self.negative}

    @property
    def roc_area(self) -> float:
        """The area under `roc`; NaN where all labels are equal."""
        from sparrow.metrics import roc_area  # imports JAX: only where there are curves

        return float(roc_area(self._counts, np, add_origin=True))

    @property
    def average_precision(self) -> float:
        """The area under the steps of `precision_recall`."""
        from sparrow.metrics import average_precision

        return float(average_precision(self._counts, np))

    def roc(self) -> tuple[Floats, Floats]:
        """Return the rates of false and of true positives, from (0, 0) to (1, 1)."""
        from sparrow.metrics import rates_from_the_top

        false, true = (np.concatenate([[0.0], rates]) for rates in rates_from_the_top(self._counts, np))
        return false / max(false[-1], 1e-300), true / max(true[-1], 1e-300)

    def precision_recall(self) -> tuple[Floats, Floats]:
        """Return recall and precision, from the highest score down."""
        from sparrow.metrics import rates_from_the_top

        false, true = rates_from_the_top(self._counts, np)
        return true / max(true[-1], 1e-300), true / (true + false)

    def calibration(self) -> tuple[Floats, Floats, Floats]:
        """Return mean prediction, share of positive rows and weight of rows, in groups of neighboring scores."""
        weight = self.positive + self.negative
        rows, (predicted, found) = grouped(weight, weight * self.score, self.positive)
        return predicted, found, rows

    def by_score(self) -> tuple[Floats, Floats, Floats]:
        """Return the middles of equal bins of the probability, and the weight of negative and positive rows in each."""
        edge = float(self.score.max())
        top = 10.0 ** np.floor(np.log10(edge))
        top = float(min(np.ceil(edge / top) * top, 1.0))
        group = np.minimum((SCORE_BARS * self.score / top).astype(np.int64), SCORE_BARS - 1)
        negative, positive = (np.bincount(group, column, SCORE_BARS) for column in (self.negative, self.positive))
        return (np.arange(SCORE_BARS) + 0.5) * top / SCORE_BARS, negative, positive


@dataclasses.dataclass(frozen=True)
class Task:
    """A task whose charts are drawn.

    Attributes:
      runs: the names of the runs.
      name: the name of the task, for the ids of charts.
      suffix: the end of titles.
    """

    runs: Sequence[str]
    name: str
    suffix: str

    def label(self, index: int, alone: str) -> str:
        """Return the name of a run's line; ``alone``: of one run."""
        return self.runs[index] if len(self.runs) > 1 else alone

    def chart(self, title: str, series: Sequence[Series], x: Axis, y: Axis, id: str, **options: Any) -> Chart:
        return Chart(f"{title}{self.suffix}", series, x, y, id=f"{id}-{self.name}", **options)


Held = Mapping[int, Mapping[str, Any]]
"""The counts of the runs that have them, by the position of the run."""


def curve_charts(task: Task, held: Held) -> list[Chart]:
    """Return the charts of one task."""
    several = len(task.runs) > 1
    scored = {index: Scored.of(counts) for index, counts in held.items()}
    unit = Axis.around([0.0, 1.0], "", tight=True, count=5)
    only = next(iter(scored.values()))
    roc, precision, calibration = [], [], []
    for index, rows in scored.items():
        areas = [f" {_area(area)}" * several for area in (rows.roc_area, rows.average_precision)]
        roc.append(Series(task.label(index, "ROC") + areas[0], *_lists(*rows.roc()), color=index))
        label = task.label(index, "precision") + areas[1]
        precision.append(Series(label, *_lists(*rows.precision_recall()), color=index))
        x, y, weight = rows.calibration()
        about = [f"{count:,.0f} rows" for count in weight]
        label = task.label(index, "observed")
        calibration.append(Series(label, *_lists(x, y), color=index, points=True, about=about))
    ends = [value for line in calibration for value in (*line.x, *line.y)]
    mean, share = (Axis.around(ends, title, from_zero=True) for title in ("mean prediction", "share of positive rows"))
    false, true, found, right = (
        dataclasses.replace(unit, title=title)
        for title in ("false positive rate", "true positive rate", "recall", "precision")
    )
    areas = ["" if several else f"area {_area(area)}" for area in (only.roc_area, only.average_precision)]
    charts = [
        task.chart("ROC", roc, false, true, "roc", diagonal=True, value=areas[0]),
        task.chart("Precision by recall", precision, found, right, "pr", value=areas[1]),
        task.chart("Calibration", calibration, mean, share, "calibration", diagonal=True, note=GROUPED),
    ]
    if not several:
        x, negative, positive = only.by_score()
        kinds = (("negative rows", negative), ("positive rows", positive))
        bars = [Series(label, *_lists(x, rows), color=color) for color, (label, rows) in enumerate(kinds)]
        across = Axis.around([0.0, 2 * x[-1] - x[-2] if len(x) > 1 else 1.0], "prediction", tight=True, count=5)
        up = Axis.around([*negative, *positive], "rows", from_zero=True)
        charts.append(task.chart("Rows by prediction", bars, across, up, "scores", bars=True))
    return charts


def _area(value: float) -> str:
    return f"{value:.4f}" if np.isfinite(value) else "not defined"


def _lists(x: Floats, y: Floats) -> tuple[list[float], list[float]]:
    return x.tolist(), y.tolist()


def number_charts(task: Task, held: Held) -> list[Chart]:
    """Return the charts of one task."""
    labels: list[Series] = []
    errors: list[Series] = []
    for index, counts in held.items():
        predicted, found, error, weight = by_prediction(counts)
        about = [f"{rows:,.0f} rows" for rows in weight]
        for lines, alone, y in ((labels, "mean label", found), (errors, "root mean square error", error)):
            label = task.label(index, alone)
            lines.append(Series(label, *_lists(predicted, y), color=index, points=True, about=about))
    ends = [value for line in labels for value in (*line.x, *line.y)]
    across, up = (Axis.around(ends, title) for title in ("mean prediction", "mean label"))
    of_errors = Axis.around([x for line in errors for x in line.x], "mean prediction")
    error_axis = Axis.around([y for line in errors for y in line.y], "root mean square error", from_zero=True)
    charts = [
        task.chart("Labels by prediction", labels, across, up, "labels", note=GROUPED, diagonal=True),
        task.chart("Error by prediction", errors, of_errors, error_axis, "error-by-prediction"),
    ]
    return charts if len(task.runs) > 1 else [*charts, *_bar_charts(task, next(iter(held.values())))]


def by_prediction(counts: Mapping[str, Any]) -> tuple[Floats, Floats, Floats, Floats]:
    """Return mean prediction, mean label, root mean square error and weight of rows, in groups of equal weight."""
    weight, predicted, label, squared = (
        np.asarray(counts[name], np.float64) for name in ("weight", "prediction", "label", "squared_error")
    )
    rows, means = grouped(weight, *(weight * column for column in (predicted, label, squared)))
    return means[0], means[1], np.sqrt(means[2]), rows


def _bar_charts(task: Task, counts: Mapping[str, Any]) -> list[Chart]:
    weight, predicted, label = (np.asarray(counts[name], np.float64) for name in ("weight", "prediction", "label"))
    bias = float(weight @ (predicted - label) / weight.sum())
    error, rows = _sorted(counts["errors"])
    low, high = quantile(error, rows, OUTSIDE), quantile(error, rows, 1 - OUTSIDE)
    bars = _bars("prediction - label", error, rows, low, high)
    left_out = 1 - sum(bars.y) / rows.sum()
    outside = f"; {percent(left_out)} of rows are outside of the drawing" if left_out > 1e-6 else ""
    half = quantile(np.sort(np.abs(error)), rows[np.argsort(np.abs(error), kind="stable")], 0.5)
    across = Axis.around([low, high], "prediction − label", tight=True, count=5)
    words = {"note": f"half of the rows are within {precise(half)}{outside}", "value": f"mean {precise(bias)}"}
    up = Axis.around(bars.y, "rows", from_zero=True)
    charts = [task.chart("Errors", [bars], across, up, "errors", bars=True, **words)]
    value, rows = _sorted(counts["labels"])
    ends = [quantile(value, rows, OUTSIDE), quantile(value, rows, 1 - OUTSIDE)]
    ends += [quantile(predicted, weight, OUTSIDE), quantile(predicted, weight, 1 - OUTSIDE)]
    low, high = min(ends), max(ends)
    both = [_bars("labels", value, rows, low, high), _bars("predictions", predicted, weight, low, high)]
    both = [dataclasses.replace(line, color=color) for color, line in enumerate(both)]
    across = Axis.around([low, high], "value", tight=True, count=5)
    up = Axis.around([y for line in both for y in line.y], "rows", from_zero=True)
    return [*charts, task.chart("Labels and predictions", both, across, up, "values", bars=True)]


def quantile(value: Floats, weight: Floats, share: float) -> float:
    """Return the value below which a share of the weight lies; values ascend.

    >>> quantile(np.array([1.0, 2.0, 8.0]), np.array([1.0, 2.0, 1.0]), 0.5)
    2.0
    """
    return float(value[min(int(np.searchsorted(np.cumsum(weight), share * weight.sum())), len(value) - 1)])


def _sorted(counts: Mapping[str, Any]) -> tuple[Floats, Floats]:
    value, weight = np.asarray(counts["value"], np.float64), np.asarray(counts["weight"], np.float64)
    order = np.argsort(value, kind="stable")
    return value[order], weight[order]


def _bars(name: str, value: Floats, weight: Floats, low: float, high: float) -> Series:
    """Return the weight in equal bins from ``low`` to ``high``; counted bins are spread over the bars they cover."""
    width = (high - low) / BARS or 1.0
    middles = low + (np.arange(BARS) + 0.5) * width
    edges = np.concatenate([[value[0]], (value[1:] + value[:-1]) / 2, [value[-1]]])
    rows = np.zeros(BARS)
    for index in range(len(value)):
        first, last = (edges[index] - low) / width, (edges[index + 1] - low) / width
        if last - first < 1:  # narrower than a bar: all of it stands where its middle is
            at = (value[index] - low) / width
            if 0 <= at <= BARS:
                rows[min(int(at), BARS - 1)] += weight[index]
            continue
        places = np.clip(np.arange(BARS + 1), first, last)
        rows += weight[index] * np.diff(places) / (last - first)
    return Series(name, middles.tolist(), rows.tolist())


def rank_charts(task: Task, held: Held) -> list[Chart]:
    """Return the charts of one task."""
    series = [Series(task.label(index, "own item"), *within(counts), color=index) for index, counts in held.items()]
    only = next(iter(held.values()))
    candidates, value = only["candidates"], ""
    if len(task.runs) == 1:
        ranks = [rank for rank in series[0].x if rank <= candidates] or [1.0]
        series.append(Series("by chance", ranks, [rank / candidates for rank in ranks], color=1))
        value = f"median rank {median(only):,}"
    across = Axis.around([x for line in series for x in line.x], "K", log=True)
    up = Axis.around([0.0, 1.0], "share of rows", from_zero=True)
    note = f"ranked among the {candidates:,.0f} items of its batch, not among all items"
    return [task.chart("Own item among the first K", series, across, up, "ranks", note=note, value=value)]


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
