"""The page: one HTML file with everything in it; `inline`: a run in a notebook, with a style and without a script."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, Final

from sparrow.errors import DataError
from sparrow.files import AnyPath, at, replace_file
from sparrow.reports.axis import Axis
from sparrow.reports.chart import Chart, Series
from sparrow.reports.curves import Task, at_k_charts, curve_charts, number_charts, rank_charts
from sparrow.reports.facts import compared, comparison_html, config_html, environment_html
from sparrow.reports.formatting import date, duration, precise
from sparrow.reports.learning import gradient_charts, learning_charts, rate_charts, speed_charts
from sparrow.reports.recorded import REPORT, RecordedRun, read_all
from sparrow.reports.tiles import spent_html, tiles_html
from sparrow.reports.traffic import sampled, traffic_html

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""Content policy: the page loads nothing that is not in it, so that a browser asks the network for nothing."""


def write_report(folders: Sequence[str | AnyPath], output: str | AnyPath | None = None) -> AnyPath:
    """Write the report of one run, or of several compared. Gives its path.

    Args:
      folders: of the runs.
      output: the file; ``report.html`` in the run's folder, or here where there are several.
    """
    runs = read_all(folders)
    path = at(output) if output is not None else (runs[0].folder if len(runs) == 1 else Path()) / REPORT
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, page(runs).encode(), durable=False)
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror or error}", str(path)) from None
    return path


def unshared(folders: Sequence[str | AnyPath]) -> list[str]:
    """Return a note on numbers that only some of the runs have: one line, or none."""
    return _unshared(read_all(folders))


def page(runs: Sequence[RecordedRun]) -> str:
    """Return the complete document."""
    sections = [
        _section("Comparison", comparison_html(runs)) if len(runs) > 1 else "",
        _charts("Learning", [*learning_charts(runs), *rate_charts(runs), *gradient_charts(runs)], _notes(runs)),
        _charts("Windows, before training on them", window_charts(runs)),
        _charts("Quality of the predictions", quality_charts(runs), quality_text(runs)),
        _section("Importance of features", "".join(_importance(run, len(runs) > 1) for run in runs)),
        _section("Tables", traffic_html(runs), sampled(runs)),
        _charts("Speed and memory", speed_charts(runs), html=spent_html(runs)),
        _section("Configuration", config_html(runs)),
        _section("Versions and machine", environment_html(runs)),
    ]
    title = escape(" · ".join(run.name for run in runs))
    summary = f"<p>{len(runs)} runs compared</p>"
    if len(runs) == 1:
        summary = f"<p>{escape(_status(runs[0]))}</p>{tiles_html(runs[0])}"
    style, script = _asset("report.css"), _asset("report.js")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{style}</style></head><body>",
            f'<header><p class="over">Sparrow</p><h1>{title}</h1>{summary}</header>',
            f"<main>{''.join(sections)}</main>",
            f"<script>{script}</script></body></html>\n",
        ]
    )


def _asset(name: str) -> str:
    return (resources.files("sparrow.reports") / "assets" / name).read_text(encoding="utf-8")


def _status(run: RecordedRun) -> str:
    sessions = run.environment.get("sessions", [])
    last = sessions[-1] if sessions else {}
    times = [entry.time for entry in (*run.train, *run.evaluations)]
    began = sessions[0].get("began", run.began) if sessions else run.began
    how = last.get("ended")
    state, _, why = how.partition(": ") if how else ("not finished: the last line is", "", "")
    took = f", after {duration(max(max(times) - began, 0.0))}" if began is not None and how else ""
    text = f"{state[0].upper()}{state[1:]} at step {run.last_step:,} on {date(max(times))}{took}"
    return f"{text}: {why}" if why else text


def _notes(runs: Sequence[RecordedRun]) -> str:
    notes = []
    if not any(run.evaluations for run in runs):
        notes.append("There is no evaluation yet." if len(runs) == 1 else "No run has an evaluation yet.")
    notes += _unshared(runs)
    return " ".join(notes)


def _unshared(runs: Sequence[RecordedRun]) -> list[str]:
    missing = []
    for name, values in compared(runs).numbers.items():
        having = [run.name for run, value in zip(runs, values, strict=True) if value is not None]
        if len(having) < len(runs):
            missing.append(f"{name} is in {', '.join(having)} only")
    return [f"Not every run has every number: {'; '.join(missing)}."] if missing else []


def _charts(title: str, charts: Sequence[Chart], text: str = "", html: str = "") -> str:
    if not charts:
        return ""
    words = f"<p>{escape(text)}</p>" if text else ""
    return _section(title, f'{words}{html}<div class="grid">{"".join(chart.html() for chart in charts)}</div>')


def _section(title: str, html: str, aside: str = "") -> str:
    small = f" <small>{escape(aside)}</small>" if aside else ""
    return f"<section><h2>{escape(title)}{small}</h2>{html}</section>" if html else ""


CHARTS: Final[dict[str, Callable[..., list[Chart]]]] = {
    "scores": curve_charts,
    "numbers": number_charts,
    "ranks": rank_charts,
}
"""The charts of the counts of each kind."""


def quality_charts(runs: Sequence[RecordedRun]) -> list[Chart]:
    """Return the charts of each task, of every run that has its counts."""
    counts: list[dict[str, Any]] = [run.shown_curves.get("tasks", {}) for run in runs]
    tasks = dict.fromkeys(task for held in counts for task in held)
    charts = at_k_charts(runs)
    for task in tasks:
        of_task = {index: held[task] for index, held in enumerate(counts) if task in held}
        kind = next(iter(of_task.values())).get("kind", "scores")
        alike = {index: held for index, held in of_task.items() if held.get("kind", "scores") == kind}
        suffix = f", {task}" if len(tasks) > 1 else ""
        if kind in CHARTS:
            charts += CHARTS[kind](Task([run.name for run in runs], task, suffix), alike)
    return charts


def quality_text(runs: Sequence[RecordedRun]) -> str:
    """Return a sentence on the evaluations that are shown."""
    shown = [(run, run.shown_curves) for run in runs if "step" in run.shown_curves]
    if len(runs) > 1:
        at = "; ".join(f"{run.name} at step {curves['step']:,}" for run, curves in shown)
        return f"From the best or last evaluation: {at}." if at else ""
    if not shown:
        return ""
    run, curves = shown[0]
    which = "best" if "best" in run.curves else "last"
    return f"From the {which} evaluation, after step {curves['step']:,}."


IMPORTANCE: Final = "importance.json"
"""The file in the folder of a run, as ``sparrow eval --importance`` writes it."""
_MOST: Final = 40


def _importance(run: RecordedRun, named: bool) -> str:
    """Return the table of a run that knows the importance of its features."""
    found = _read(run)
    if not found:
        return ""
    losses = {name: float(results["loss"]) for name, results in found["features"].items()}
    largest = max((abs(value) for value in losses.values()), default=0.0) or 1.0
    rows = [
        f'<tr><td>{escape(name)}</td><td class="num">{precise(value)}</td>'
        f'<td><svg width="160" height="10" role="img" aria-label="{precise(value)}">'
        f'<rect width="{max(160 * value / largest, 0):.1f}" height="10" fill="currentColor"/></svg></td></tr>'
        for name, value in list(losses.items())[:_MOST]
    ]
    left = f"<p>And {len(losses) - _MOST} more.</p>" if len(losses) > _MOST else ""
    title = f"<h3>{escape(run.name)}</h3>" if named else ""
    text = f"Growth of the loss of step {found['step']:,} when the values of a feature are dealt to other rows."
    head = "<tr><th>feature</th><th>loss</th><th></th></tr>"
    return f'{title}<p>{text}</p><table class="facts">{head}{"".join(rows)}</table>{left}'


def _read(run: RecordedRun) -> dict[str, Any]:
    """Return the content of the file; nothing where there is none, or where it is of an earlier run in the folder."""
    try:
        found: dict[str, Any] = json.loads((run.folder / IMPORTANCE).read_bytes())
        is_of_run = run.began is None or found["time"] >= run.began
        complete = {name: float(results["loss"]) for name, results in found["features"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return found if is_of_run and complete else {}


BEGIN = "event_time"
DRIFT = {"coverage/": "Ids per example, by table", "unseen/": "Share of ids not seen before, by table"}


def window_charts(runs: Sequence[RecordedRun]) -> list[Chart]:
    """Return a chart per metric and per kind of drift, by hours of event time, or by steps where there is none."""
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


MOST_CHARTS: Final = 6


def inline(title: str, facts: Mapping[str, str], charts: Iterable[Chart] = ()) -> str:
    """Return a title, a table of facts and some charts.

    >>> "<b>a &amp; b</b>" in inline("a & b", {"step": "5"})
    True
    """
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
    drawn = "".join(chart.html(static=True) for chart in charts)
    grid = f'<div class="grid">{drawn}</div>' if drawn else ""
    style = _asset("inline.css")
    return f'<div class="sparrow"><style>{style}</style><p><b>{escape(title)}</b></p><table>{rows}</table>{grid}</div>'


def run_charts(folder: AnyPath) -> list[Chart]:
    """Return the curves of the loss and the metrics of a run; none where nothing is recorded yet."""
    try:
        return learning_charts([RecordedRun.read(folder)])[:MOST_CHARTS]
    except DataError:
        return []
