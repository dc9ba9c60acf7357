"""A run inside a notebook: its numbers and curves as a piece of HTML, with a style of its own and no script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Final

from sparrow.errors import DataError
from sparrow.files import AnyPath
from sparrow.reports.chart import Chart
from sparrow.reports.learning import learning_charts
from sparrow.reports.recorded import RecordedRun

MOST_CHARTS: Final = 6
STYLE: Final = """
.sparrow { --line: #dfe3e7; --soft: #5c6670; --c0: #0072b2; --c1: #d55e00; --c2: #008f68; --c3: #b8639a; --c4: #b27a00;
  --c5: #2f9bd6; max-width: 960px; font-size: 14px; }
.sparrow .grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(280px, 1fr)); gap: 16px; }
.sparrow td, .sparrow th { text-align: left; padding: 2px 10px 2px 0; }
.sparrow figure { margin: 0; } .sparrow figcaption { font-weight: 600; }
.sparrow svg { width: 100%; height: auto; overflow: visible; }
.sparrow .axis path { stroke: var(--line); fill: none; } .sparrow .axis text { fill: var(--soft); font-size: 12px; }
.sparrow .series path { fill: none; stroke: var(--color); stroke-width: 1.9; }
.sparrow .series circle { fill: var(--color); } .sparrow .series.faint path { stroke-width: 1.1; opacity: 0.4; }
.sparrow .series .ring { fill: none; stroke: var(--color); stroke-width: 1.6; }
.sparrow .over path { stroke-dasharray: 5 5; }
.sparrow .mark path { stroke: var(--soft); stroke-dasharray: 2 3; fill: none; }
.sparrow .mark text { fill: var(--soft); font-size: 11.5px; } .sparrow .axis.epochs text { font-size: 11px; }
.sparrow .key { color: var(--color); margin-right: 12px; } .sparrow .note, .sparrow small { color: var(--soft); }
.sparrow .c0 { --color: var(--c0); } .sparrow .c1 { --color: var(--c1); } .sparrow .c2 { --color: var(--c2); }
.sparrow .c3 { --color: var(--c3); } .sparrow .c4 { --color: var(--c4); } .sparrow .c5 { --color: var(--c5); }
@media (prefers-color-scheme: dark) { .sparrow { --line: #2e343a; --soft: #98a2ac; --c0: #56aee6; --c1: #f28d49;
  --c2: #35c49b; --c3: #e09cc6; --c4: #ebb94a; --c5: #a3d8fb; } }
"""


def inline(title: str, facts: Mapping[str, str], charts: Iterable[Chart] = ()) -> str:
    """Return a title, a table of facts and some charts.

    >>> "<b>a &amp; b</b>" in inline("a & b", {"step": "5"})
    True
    """
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
    drawn = "".join(chart.html(static=True) for chart in charts)
    grid = f'<div class="grid">{drawn}</div>' if drawn else ""
    return f'<div class="sparrow"><style>{STYLE}</style><p><b>{escape(title)}</b></p><table>{rows}</table>{grid}</div>'


def run_charts(folder: AnyPath) -> list[Chart]:
    """Return the curves of the loss and the metrics of a run; none where nothing is recorded yet."""
    try:
        return learning_charts([RecordedRun.read(folder)])[:MOST_CHARTS]
    except DataError:
        return []
