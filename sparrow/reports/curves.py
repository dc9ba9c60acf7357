"""ROC, precision-recall and calibration of a task with two labels, from rows counted by score."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.reports.axis import Axis
from sparrow.reports.chart import Chart, Series

GROUPS: Final = 20
"""Points of a calibration curve: each stands for as many rows as the others."""
BARS: Final = 20

Floats = npt.NDArray[Any]


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
        """From a task of curves.json."""
        return cls(*(np.asarray(held[field.name], np.float64) for field in dataclasses.fields(cls)))

    @property
    def _counts(self) -> dict[str, Floats]:
        return {"positive": self.positive, "negative": self.negative}

    @property
    def roc_area(self) -> float:
        """The area under `roc`; NaN where all labels are alike."""
        from sparrow.metrics import roc_area  # imports JAX, as all of them do: only where there are curves

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
        """Recall and precision, from the highest score down."""
        from sparrow.metrics import rates_from_the_top

        false, true = rates_from_the_top(self._counts, np)
        return true / max(true[-1], 1e-300), true / (true + false)

    def calibration(self) -> tuple[Floats, Floats, Floats]:
        """Mean prediction, share of positive rows and weight of rows, in groups of neighboring scores."""
        weight = self.positive + self.negative
        middle = np.cumsum(weight) - weight / 2
        group = np.minimum((GROUPS * middle / weight.sum()).astype(np.int64), GROUPS - 1)
        rows, predicted, found = (
            np.bincount(group, column, GROUPS) for column in (weight, weight * self.score, self.positive)
        )
        held = rows > 0
        return predicted[held] / rows[held], found[held] / rows[held], rows[held]

    def by_score(self) -> tuple[Floats, Floats, Floats]:
        """Return the middles of equal bins of the probability, and the weight of negative and positive rows in each."""
        edge = float(self.score.max())
        top = 10.0 ** np.floor(np.log10(edge))
        top = float(min(np.ceil(edge / top) * top, 1.0))
        group = np.minimum((BARS * self.score / top).astype(np.int64), BARS - 1)
        negative, positive = (np.bincount(group, column, BARS) for column in (self.negative, self.positive))
        return (np.arange(BARS) + 0.5) * top / BARS, negative, positive


def curve_charts(runs: Sequence[str], task: str, suffix: str, held: Mapping[int, Mapping[str, Any]]) -> list[Chart]:
    """Return the charts of one task.

    Args:
      runs: the names of the runs.
      task: the name of the task, for the ids of charts.
      suffix: the end of titles.
      held: the counts of the runs that have them, by the position of the run.
    """
    several = len(runs) > 1
    scored = {index: Scored.of(counts) for index, counts in held.items()}

    def name(index: int, alone: str, value: float) -> str:
        return f"{runs[index]} {_area(value)}" if several else alone

    unit = Axis.around([0.0, 1.0], "", tight=True, count=5)
    only = next(iter(scored.values()))
    roc, precision, calibration = [], [], []
    for index, rows in scored.items():
        x, y = rows.roc()
        roc.append(Series(name(index, "ROC", rows.roc_area), *_lists(x, y), color=index))
        x, y = rows.precision_recall()
        precision.append(Series(name(index, "precision", rows.average_precision), *_lists(x, y), color=index))
        x, y, weight = rows.calibration()
        about = [f"{count:,.0f} rows" for count in weight]
        label = runs[index] if several else "observed"
        calibration.append(Series(label, *_lists(x, y), color=index, points=True, about=about))
    ends = [value for line in calibration for value in (*line.x, *line.y)]
    charts = [
        Chart(
            f"ROC{suffix}",
            roc,
            _named(unit, "false positive rate"),
            _named(unit, "true positive rate"),
            diagonal=True,
            value="" if several else f"area {_area(only.roc_area)}",
            id=f"roc-{task}",
        ),
        Chart(
            f"Precision by recall{suffix}",
            precision,
            _named(unit, "recall"),
            _named(unit, "precision"),
            value="" if several else f"area {_area(only.average_precision)}",
            id=f"pr-{task}",
        ),
        Chart(
            f"Calibration{suffix}",
            calibration,
            Axis.around(ends, "mean prediction", from_zero=True),
            Axis.around(ends, "share of positive rows", from_zero=True),
            diagonal=True,
            note=f"each point: one of up to {GROUPS} groups of equal weight, by prediction",
            id=f"calibration-{task}",
        ),
    ]
    if not several:
        x, negative, positive = only.by_score()
        bars = [
            Series("negative rows", *_lists(x, negative), color=0),
            Series("positive rows", *_lists(x, positive), color=1),
        ]
        across = Axis.around([0.0, 2 * x[-1] - x[-2] if len(x) > 1 else 1.0], "prediction", tight=True, count=5)
        up = Axis.around([*negative, *positive], "rows", from_zero=True)
        charts.append(Chart(f"Rows by prediction{suffix}", bars, across, up, bars=True, id=f"scores-{task}"))
    return charts


def _named(axis: Axis, title: str) -> Axis:
    return dataclasses.replace(axis, title=title)


def _area(value: float) -> str:
    return f"{value:.4f}" if np.isfinite(value) else "not defined"


def _lists(x: Floats, y: Floats) -> tuple[list[float], list[float]]:
    return x.tolist(), y.tolist()
