"""Charts of a task that predicts a number: labels by prediction, errors, and both distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.reports.axis import Axis
from sparrow.reports.chart import Chart, Series
from sparrow.reports.formatting import percent, precise

GROUPS: Final = 20
"""Points of the curves by prediction: each stands for as many rows as the others."""
BARS: Final = 30
OUTSIDE: Final = 0.005
"""The share of rows at either end that bars leave out."""

Floats = npt.NDArray[Any]


def number_charts(runs: Sequence[str], task: str, suffix: str, held: Mapping[int, Mapping[str, Any]]) -> list[Chart]:
    """Return the charts of one task; the arguments are those of `curve_charts`."""
    several = len(runs) > 1
    labels, errors = [], []
    for index, counts in held.items():
        predicted, found, error, weight = by_prediction(counts)
        about = [f"{rows:,.0f} rows" for rows in weight]
        name = runs[index] if several else "mean label"
        labels.append(Series(name, predicted.tolist(), found.tolist(), color=index, points=True, about=about))
        name = runs[index] if several else "root mean square error"
        errors.append(Series(name, predicted.tolist(), error.tolist(), color=index, points=True, about=about))
    ends = [value for line in labels for value in (*line.x, *line.y)]
    note = f"each point: one of up to {GROUPS} groups of equal weight, by prediction"
    across = Axis.around(ends, "mean prediction")
    charts = [
        Chart(
            f"Labels by prediction{suffix}",
            labels,
            across,
            Axis.around(ends, "mean label"),
            note=note,
            diagonal=True,
            id=f"labels-{task}",
        ),
        Chart(
            f"Error by prediction{suffix}",
            errors,
            Axis.around([x for line in errors for x in line.x], "mean prediction"),
            Axis.around([y for line in errors for y in line.y], "root mean square error", from_zero=True),
            id=f"error-by-prediction-{task}",
        ),
    ]
    return charts if several else [*charts, *_bar_charts(task, suffix, next(iter(held.values())))]


def by_prediction(counts: Mapping[str, Any]) -> tuple[Floats, Floats, Floats, Floats]:
    """Return mean prediction, mean label, root mean square error and weight of rows, in groups of equal weight."""
    weight, predicted, label, squared = (
        np.asarray(counts[name], np.float64) for name in ("weight", "prediction", "label", "squared_error")
    )
    middle = np.cumsum(weight) - weight / 2
    group = np.minimum((GROUPS * middle / weight.sum()).astype(np.int64), GROUPS - 1)
    rows, *sums = (np.bincount(group, weight * column, GROUPS) for column in (1.0, predicted, label, squared))
    kept = rows > 0
    means = [total[kept] / rows[kept] for total in sums]
    return means[0], means[1], np.sqrt(means[2]), rows[kept]


def _bar_charts(task: str, suffix: str, counts: Mapping[str, Any]) -> list[Chart]:
    weight, predicted, label = (np.asarray(counts[name], np.float64) for name in ("weight", "prediction", "label"))
    bias = float(weight @ (predicted - label) / weight.sum())
    error, rows = _sorted(counts["errors"])
    low, high = quantile(error, rows, OUTSIDE), quantile(error, rows, 1 - OUTSIDE)
    bars = _bars("prediction - label", error, rows, low, high)
    left_out = 1 - sum(bars.y) / rows.sum()
    half = quantile(np.sort(np.abs(error)), rows[np.argsort(np.abs(error), kind="stable")], 0.5)
    charts = [
        Chart(
            f"Errors{suffix}",
            [bars],
            Axis.around([low, high], "prediction − label", tight=True, count=5),
            Axis.around(bars.y, "rows", from_zero=True),
            note=f"half of the rows are within {precise(half)}" + _outside(left_out),
            bars=True,
            value=f"mean {precise(bias)}",
            id=f"errors-{task}",
        )
    ]
    value, rows = _sorted(counts["labels"])
    ends = [quantile(value, rows, OUTSIDE), quantile(value, rows, 1 - OUTSIDE)]
    ends += [quantile(predicted, weight, OUTSIDE), quantile(predicted, weight, 1 - OUTSIDE)]
    low, high = min(ends), max(ends)
    both = [_bars("labels", value, rows, low, high), _bars("predictions", predicted, weight, low, high)]
    both = [Series(line.name, line.x, line.y, color=color) for color, line in enumerate(both)]
    across = Axis.around([low, high], "value", tight=True, count=5)
    up = Axis.around([y for line in both for y in line.y], "rows", from_zero=True)
    charts.append(Chart(f"Labels and predictions{suffix}", both, across, up, bars=True, id=f"values-{task}"))
    return charts


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


def _outside(share: float) -> str:
    return f"; {percent(share)} of rows are outside of the drawing" if share > 1e-6 else ""
