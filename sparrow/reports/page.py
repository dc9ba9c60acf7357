"""The page: one HTML file with everything in it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Final

from sparrow.errors import DataError
from sparrow.files import AnyPath, at, replace_file
from sparrow.reports.chart import Chart
from sparrow.reports.facts import comparison_html, config_html, environment_html, final_values
from sparrow.reports.formatting import date, duration
from sparrow.reports.importance import importance_html
from sparrow.reports.learning import gradient_charts, learning_charts, rate_charts, speed_charts
from sparrow.reports.quality import quality_charts, quality_text
from sparrow.reports.recorded import REPORT, RecordedRun, read_all
from sparrow.reports.spent import spent_html
from sparrow.reports.tiles import tiles_html
from sparrow.reports.traffic import sampled, traffic_html
from sparrow.reports.windows import window_charts

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
    """Return the whole document."""
    sections = [
        _section("Comparison", comparison_html(runs)) if len(runs) > 1 else "",
        _charts("Learning", [*learning_charts(runs), *rate_charts(runs), *gradient_charts(runs)], _notes(runs)),
        _charts("Windows, before training on them", window_charts(runs)),
        _charts("Quality of the predictions", quality_charts(runs), quality_text(runs)),
        _section("Importance of features", importance_html(runs)),
        _section("Tables", traffic_html(runs), sampled(runs)),
        _charts("Speed and memory", speed_charts(runs), html=spent_html(runs)),
        _section("Configuration", config_html(runs)),
        _section("Versions and machine", environment_html(runs)),
    ]
    title = escape(" · ".join(run.name for run in runs))
    assets = resources.files("sparrow.reports") / "assets"
    style, script = ((assets / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{style}</style></head><body>",
            f'<header><p class="over">Sparrow</p><h1>{title}</h1>{_summary(runs)}</header>',
            f"<main>{''.join(sections)}</main>",
            f"<script>{script}</script></body></html>\n",
        ]
    )


def _summary(runs: Sequence[RecordedRun]) -> str:
    if len(runs) > 1:
        return f"<p>{len(runs)} runs compared</p>"
    return f"<p>{escape(_status(runs[0]))}</p>{tiles_html(runs[0])}"


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
    final = [final_values(run) for run in runs]
    said = []
    for name in dict.fromkeys(name for values in final for name in values):
        having = [run.name for run, values in zip(runs, final, strict=True) if name in values]
        if len(having) < len(runs):
            said.append(f"{name} is in {', '.join(having)} only")
    return [f"Not every run has every number: {'; '.join(said)}."] if said else []


def _charts(title: str, charts: Sequence[Chart], text: str = "", html: str = "") -> str:
    if not charts:
        return ""
    words = f"<p>{escape(text)}</p>" if text else ""
    return _section(title, f'{words}{html}<div class="grid">{"".join(chart.html() for chart in charts)}</div>')


def _section(title: str, html: str, aside: str = "") -> str:
    small = f" <small>{escape(aside)}</small>" if aside else ""
    return f"<section><h2>{escape(title)}{small}</h2>{html}</section>" if html else ""
