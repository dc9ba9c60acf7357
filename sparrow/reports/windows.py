"""Charts of the windows of a run: each batch judged before it was trained on, and what drifts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparrow.reports.axis import Axis
from sparrow.reports.chart import Chart, Series
from sparrow.reports.recorded import RecordedRun

BEGIN = "event_time"
DRIFT = {"coverage/": "Ids per example, by table", "unseen/": "Share of ids not seen before, by table"}


def window_charts(runs: Sequence[RecordedRun]) -> list[Chart]:
    """One chart a metric, by hours of event time, or by steps where there is none; and one of each kind of drift."""
    names = dict.fromkeys(name for run in runs for name in run.names("window") if name != BEGIN)
    charts = [_chart(runs, name, [name]) for name in names if not name.startswith(tuple(DRIFT))]
    for prefix, title in DRIFT.items():
        if own := [name for name in names if name.startswith(prefix)]:
            charts.append(_chart(runs, title, own))
    return charts


def _chart(runs: Sequence[RecordedRun], title: str, names: Sequence[str]) -> Chart:
    series: list[Series] = []
    has_time = all(BEGIN in run.names("window") for run in runs if run.windows)
    first = min((entry.values.get(BEGIN, math.inf) for run in runs for entry in run.windows), default=0.0)
    for run in runs:
        entries = run.windows
        for name in names:
            x = [(entry.values[BEGIN] - first) / 3600 if has_time else float(entry.step) for entry in entries]
            y = [entry.values.get(name, math.nan) for entry in entries]
            label = name.partition("/")[2] or name
            of_run = f"{run.name}, {label}" if len(runs) > 1 else label
            series.append(Series(of_run, x, y, color=len(series), points=len(x) < 100))
    x_axis = Axis.around(
        (v for line in series for v in line.x), "hours of event time" if has_time else "step", tight=True, count=5
    )
    y_axis = Axis.around((v for line in series for v in line.y), title.partition(",")[0])
    return Chart(title, series, x_axis, y_axis, id=f"window-{names[0].replace('/', '-')}")
