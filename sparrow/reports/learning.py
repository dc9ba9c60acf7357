"""Charts by step and by time: metrics, learning rates and gradient norms; speed and memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

from sparrow.reports.axis import Axis, is_wide
from sparrow.reports.chart import Chart, Mark, Series
from sparrow.reports.recorded import Points, RecordedRun

STEP: Final = "optimizer step"
SPEED: Final = "examples_per_second"
WAITING: Final = "waiting_for_data"
LOSS: Final = "loss"
AMONG_ALL: Final = "catalog_"
"""Metrics of chosen items among all items begin with it."""
LEAST: Final = 0.05
"""The smallest span of a metric's axis, as a share of its largest value."""
SMOOTHED: Final = 20
"""Lines of fewer points are shown as they are."""
RATE: Final = "learning_rate/"
NORM: Final = "gradient_norm"
MEMORY: Final = {"device_memory": "device memory", "host_memory": "memory of the process"}
CACHES: Final = {
    "cache_bytes_in": "rows to the device, bytes per step",
    "cache_bytes_out": "rows from the device, bytes per step",
}
"""Numbers of the caches of tables in host memory."""
KINDS: Final = {"train": "training", "eval": "evaluation"}
UNITS: Final = ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))


def metric_names(run: RecordedRun, kind: str) -> list[str]:
    """Return the names of the loss and the metrics."""
    others = {SPEED, WAITING, NORM, *MEMORY, *CACHES}
    return [name for name in run.names(kind) if name not in others and not name.startswith((RATE, f"{NORM}/"))]


def learning_charts(runs: Sequence[RecordedRun]) -> list[Chart]:
    """Return one chart per metric: training and evaluations of every run that has it.

    In the report of one run, the metrics among all items share a chart.
    """
    names = dict.fromkeys(
        name for run in runs for name in itertools.chain.from_iterable(metric_names(run, kind) for kind in KINDS)
    )
    shared = [name for name in names if name.startswith(AMONG_ALL)] if len(runs) == 1 else []
    charts = [_by_step(runs, name, name) for name in names if len(shared) < 2 or name not in shared]
    return charts if len(shared) < 2 else [*charts[:1], _among_all(runs[0], shared), *charts[1:]]


def _among_all(run: RecordedRun, names: Sequence[str]) -> Chart:
    """Return the chart of the metrics among all items."""
    series = []
    for index, name in enumerate(names):
        points = run.points("eval", name)
        decides = run.criterion is not None and run.criterion.metric == name and run.best is not None
        ring = run.best.step if decides and run.best is not None else None
        label = name.removeprefix(AMONG_ALL)
        series.append(Series(label, points.steps, points.values, color=index, points=True, ring=ring))
    y = Axis.around((value for line in series for value in line.y), "among all items", from_zero=True)
    options = {"legend": True, "id": "metric-catalog", "marks": _marks([run])}
    return _chart([run], "Chosen items among all items", series, y, **options)


def rate_charts(runs: Sequence[RecordedRun]) -> list[Chart]:
    """Return the learning rates of the dense parameters and of the tables; tables with the same rate share a line."""
    series: list[Series] = []
    for run in runs:
        alike: dict[tuple[float, ...], list[str]] = {}
        steps: dict[tuple[float, ...], list[int]] = {}
        for name in run.names("train"):
            if name.startswith(RATE):
                points = run.points("train", name)
                key = (*points.steps, *points.values)
                alike.setdefault(key, []).append(name.removeprefix(RATE))
                steps[key] = points.steps
        for key, names in alike.items():
            names = ["tables" if name == "sparse" else name.removeprefix("sparse/") for name in names]
            label = ", ".join(names) if len(names) <= 3 else f"{names[0]}, {names[1]} and {len(names) - 2} more"
            label = label if len(runs) == 1 else f"{run.name}: {label}"
            values = list(key[len(steps[key]) :])
            series.append(Series(label, steps[key], values, color=len(series)))
    if not series:
        return []
    values = [y for line in series for y in line.y]
    # A schedule that falls to 0 is a straight line on a plain axis; rates of different size need the other one.
    log = min(values) > 0 and is_wide([max(line.y) for line in series])
    y = Axis.around(values, "learning rate", log=log, from_zero=True)
    return [_chart(runs, "Learning rate", series, y, legend=True, id="learning-rate")]


def gradient_charts(runs: Sequence[RecordedRun]) -> list[Chart]:
    """Return the norms of the gradients, where a run has them."""
    charts = []
    if any(NORM in run.names("train") for run in runs):
        charts.append(_by_step(runs, NORM, "Norm of all gradients"))
    for run in runs:
        names = [name for name in run.names("train") if name.startswith(f"{NORM}/")]
        series = [
            Series(name.removeprefix(f"{NORM}/"), points.steps, points.values, color=index)
            for index, name in enumerate(names)
            for points in [run.points("train", name)]
        ]
        if series:
            title = "Norms by parameter" if len(runs) == 1 else f"Norms by parameter, {run.name}"
            values = [y for line in series for y in line.y]
            axis = Axis.around(values, "gradient norm", log=is_wide(values), from_zero=True)
            charts.append(_chart(runs, title, series, axis))
    return charts


def speed_charts(runs: Sequence[RecordedRun]) -> list[Chart]:
    """Return throughput, waits, caches and memory over time."""
    charts = []
    waiting = {WAITING: "waits for data, share of the time"}
    for name, title in {SPEED: "Examples per second", **waiting, **CACHES, **MEMORY}.items():
        found = [(index, run, run.points("train", name)) for index, run in enumerate(runs)]
        found = [(index, run, points) for index, run, points in found if points.values]
        if not found or (name == WAITING and not any(any(points.values) for _, _, points in found)):
            continue
        is_bytes = name in MEMORY or "_bytes_" in name
        scale, unit = _bytes_unit(found[0][2].values) if is_bytes else (1.0, "")
        longest = max(points.times[-1] - (run.began or 0.0) for _, run, points in found)
        per, clock = next(((per, word) for per, word in UNITS if longest >= 2 * per), (1, "seconds"))
        series = [
            Series(
                run.name if len(runs) > 1 else title,
                [(time - (run.began or 0.0)) / per for time in points.times],
                [value / scale for value in points.values],
                color=index,
                about=[f"step {step:,}" for step in points.steps],
            )
            for index, run, points in found
        ]
        y = Axis.around((v for line in series for v in line.y), unit or title.lower(), from_zero=True)
        x = Axis.around((v for line in series for v in line.x), f"{clock} since the first line", tight=True, count=5)
        shown = f"{title[0].upper()}{title[1:]}{f', {unit}' if unit else ''}"
        charts.append(Chart(shown, series, x, y, id=name.replace("_", "-")))
    return charts


def _by_step(runs: Sequence[RecordedRun], name: str, title: str) -> Chart:
    series: list[Series] = []
    several, is_smoothed, gaps = len(runs) > 1, False, 0
    for index, run in enumerate(runs):
        points: dict[str, Points] = {kind: run.points(kind, name) for kind in KINDS}
        for kind, word in KINDS.items():
            held = points[kind]
            if not held.values:
                continue
            is_eval = kind == "eval"
            gaps += sum(not math.isfinite(value) for value in held.values)
            label = f"{run.name}, {word}" if several else word
            color = index if several else int(is_eval)
            of_one_batch = not is_eval and (name in (LOSS, NORM) or name.startswith(f"{LOSS}/"))
            smooth = smoothed(held.values) if of_one_batch else None
            is_smoothed |= smooth is not None
            if smooth is not None and not several:
                series.append(Series(f"{label}, each line", held.steps, held.values, color=color, faint=True))
            faint = several and not is_eval and bool(points["eval"].values)
            decides = run.criterion is not None and run.criterion.metric == name
            ring = run.best.step if is_eval and decides and run.best is not None else None
            values = held.values if smooth is None else smooth
            series.append(Series(label, held.steps, values, color=color, points=is_eval, faint=faint, ring=ring))
    y = Axis.around((value for line in series for value in line.y), name, least=LEAST)
    notes = ["training is smoothed" if several else "training is smoothed, with each line behind it"] * is_smoothed
    if gaps:
        notes.append(f"{gaps} point{'s' * (gaps > 1)} without a value (the metric was not defined, or not finite)")
    options = {"note": "; ".join(notes), "legend": True, "id": f"metric-{name}", "marks": _marks(runs)}
    return _chart(runs, title, series, y, **options)


def _marks(runs: Sequence[RecordedRun]) -> list[Mark]:
    """Return the best step of one run; of several, rings mark the best steps."""
    best = runs[0].best if len(runs) == 1 else None
    return [] if best is None else [Mark(best.step, f"best, step {best.step:,}")]


def _epochs(runs: Sequence[RecordedRun]) -> list[int]:
    """Return the ends of the epochs, where all runs have the same ones or one is the start of another."""
    ends = sorted((run.epoch_ends for run in runs), key=len)
    return ends[-1] if all(each == ends[-1][: len(each)] and each for each in ends) else []


def _chart(runs: Sequence[RecordedRun], title: str, series: Sequence[Series], y: Axis, **options: Any) -> Chart:
    """Return a chart by step, with the epochs of the runs."""
    x = Axis.around((x for line in series for x in line.x), STEP, from_zero=True, tight=True, count=5)
    return Chart(title, series, x, y, epochs=_epochs(runs), **options)


def _bytes_unit(values: Sequence[float]) -> tuple[float, str]:
    largest = max((value for value in values if math.isfinite(value)), default=0.0)
    return (1e9, "GB") if largest >= 1e9 else (1e6, "MB")


def smoothed(values: Sequence[float]) -> list[float] | None:
    """Return the mean around each point, whose weights fall by half within a fiftieth of the line; None: it is short.

    ::

        mean_i = Σ_j  w^|i-j| x_j  /  Σ_j  w^|i-j|        w = 1/2 ^ (1 / max(2, points / 50))

    Values that are not finite are left out and stay gaps.

    >>> smoothed([1.0] * 19) is None, round(smoothed([0.0, 2.0] * 20)[20], 2)
    (True, 0.97)
    """
    finite = [index for index, value in enumerate(values) if math.isfinite(value)]
    if len(finite) < SMOOTHED:
        return None
    decay = 0.5 ** (1 / max(2.0, len(finite) / 50))
    kept = [values[index] for index in finite]
    before, after = _sums(kept, decay), _sums(kept[::-1], decay)[::-1]
    means = [math.nan] * len(values)
    for index, value, left, right in zip(finite, kept, before, after, strict=True):
        means[index] = (left[0] + right[0] - value) / (left[1] + right[1] - 1)
    return means


def _sums(values: Sequence[float], decay: float) -> list[tuple[float, float]]:
    """Return the weighted sum of the values up to each point, and the sum of weights."""
    total = weight = 0.0
    sums = []
    for value in values:
        total, weight = decay * total + value, decay * weight + 1
        sums.append((total, weight))
    return sums
