"""A run inside a notebook: its numbers and curves as a piece of HTML, with a style of its own and no script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from importlib import resources
from typing import Final

from sparrow.errors import DataError
from sparrow.files import AnyPath
from sparrow.reports.chart import Chart
from sparrow.reports.learning import learning_charts
from sparrow.reports.recorded import RecordedRun

MOST_CHARTS: Final = 6


def inline(title: str, facts: Mapping[str, str], charts: Iterable[Chart] = ()) -> str:
    """Return a title, a table of facts and some charts.

    >>> "<b>a &amp; b</b>" in inline("a & b", {"step": "5"})
    True
    """
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
    drawn = "".join(chart.html(static=True) for chart in charts)
    style = (resources.files("sparrow.reports") / "assets" / "inline.css").read_text(encoding="utf-8")
    grid = f'<div class="grid">{drawn}</div>' if drawn else ""
    return f'<div class="sparrow"><style>{style}</style><p><b>{escape(title)}</b></p><table>{rows}</table>{grid}</div>'


def run_charts(folder: AnyPath) -> list[Chart]:
    """Return the curves of the loss and the metrics of a run; none where nothing is recorded yet."""
    try:
        return learning_charts([RecordedRun.read(folder)])[:MOST_CHARTS]
    except DataError:
        return []
