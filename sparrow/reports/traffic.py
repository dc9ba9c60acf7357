"""Lookups by row: a line per table, and its hottest ids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from sparrow.reports.axis import Axis
from sparrow.reports.chart import Chart, Series
from sparrow.reports.formatting import compact, percent, precise
from sparrow.reports.recorded import RecordedRun

COLUMNS: Final = (
    "table",
    "rows",
    "lookups per batch",
    "unique ids per batch",
    "rows touched",
    "never touched",
    "hottest rows",
)
UNFOLDED: Final = 8
"""More tables than this have their hottest ids folded away."""


def traffic_html(runs: Sequence[RecordedRun]) -> str:
    """Return the tables of every run that counted its lookups."""
    parts = []
    for run in runs:
        traffic = run.traffic
        if not traffic.get("counted"):
            continue
        if len(runs) > 1:
            parts.append(f"<h3>{escape(run.name)}</h3>")
        tables = alike(traffic["tables"])
        how = _how(traffic)
        parts += [f"<p>{escape(how)}</p>" if how else "", _overview(tables, traffic["counted"])]
        parts += [_vocabularies(traffic.get("vocabularies", {})), _hottest(run, tables)]
    return "".join(parts)


def alike(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Join tables that were looked up with the same ids, such as the two tables of a feature.

    >>> alike({"a": {"rows": 5}, "b": {"rows": 7}, "c": {"rows": 5}})
    {'a, c': {'rows': 5}, 'b': {'rows': 7}}
    """
    groups: dict[str, list[str]] = {}
    for name, table in tables.items():
        groups.setdefault(json.dumps(table), []).append(name)
    return {", ".join(names): json.loads(table) for table, names in groups.items()}


def _how(traffic: Mapping[str, Any]) -> str:
    batches, counted = traffic["batches"], traffic["counted"]
    if counted == batches:
        return f"Every lookup of {batches:,} batches was counted."
    return (
        f"Counted in {counted:,} of {batches:,} batches ({percent(counted / batches)}): a row that only the other "
        "batches looked up appears here as never touched. train.traffic sets how much is counted."
    )


def sampled(runs: Sequence[RecordedRun]) -> str:
    """Return the word for the heading where some batches were not counted; else nothing."""
    counted = [run.traffic for run in runs if run.traffic.get("counted")]
    return "sampled" if any(traffic["counted"] < traffic["batches"] for traffic in counted) else ""


def _overview(tables: Mapping[str, Any], batches: int) -> str:
    head = "".join(f'<th scope="col"{" class=num" if i else ""}>{name}</th>' for i, name in enumerate(COLUMNS))
    body = []
    for name, table in tables.items():
        unique, rows, touched = table["unique"], table["rows"], table["touched"]
        share = table["hot"]["lookups"] / max(table["lookups"], 1)
        hot_rows = table["hot"]["rows"]
        hot = (
            f"{_bar(share)}{percent(share)} of lookups <small>to {hot_rows:,} rows ({percent(hot_rows / rows)})</small>"
        )
        cells = [
            f"{rows:,}",
            precise(round(table["lookups"] / max(batches, 1), 1)),
            f"{precise(round(unique['mean'], 1))} <small>{unique['least']:,}–{unique['most']:,}</small>",
            f"{_bar(touched / rows)}{percent(touched / rows)}",
            f"{rows - touched:,}",
            hot,
        ]
        row = "".join(
            f'<td class="num" data-label="{label}">{cell}</td>' for label, cell in zip(COLUMNS[1:], cells, strict=True)
        )
        body.append(f'<tr><th scope="row">{escape(name)}</th>{row}</tr>')
    return f'<table class="cards"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'


def _vocabularies(tables: Mapping[str, Any]) -> str:
    """Return a line for each table whose ids come and go."""
    lines = [f"<li>{escape(name)}: {escape(table['ids_in_words'])}</li>" for name, table in tables.items()]
    return f"<h4>Dynamic vocabularies</h4><ul>{''.join(lines)}</ul>" if lines else ""


def _hottest(run: RecordedRun, tables: Mapping[str, Any]) -> str:
    parts = []
    for name, table in tables.items():
        if not table["hottest"]:
            continue
        most = table["hottest"][0][1]
        names = _names(table)
        bars = "".join(
            f'<li><span class="id" title="row {row}">{escape(shown)}</span>{_bar(count / most)}'
            f'<span class="num">{count:,}</span></li>'
            for shown, (row, count) in zip(names, table["hottest"], strict=True)
        )
        error = table["error"]
        note = f"<p class=note>a bounded counter: each count is low by at most {error:,}</p>" if error else ""
        ranks = table["by_rank"]
        lines = [Series(name, [rank for rank, _ in ranks], [count for _, count in ranks])]
        chart = Chart(
            "Lookups by rank",
            lines,
            Axis.around(lines[0].x, "rank of the id, hottest first", log=True),
            Axis.around(lines[0].y, "lookups", log=True),
            id=f"rank-{run.name}-{name}",
        )
        first = table["hottest"][0]
        parts.append(
            f"<details><summary>{escape(name)} <small>hottest id {escape(names[0])}: {compact(first[1])} lookups, "
            f"{percent(first[1] / max(table['lookups'], 1))}</small></summary>"
            f'<div class="grid"><div><h4>Hottest ids and their lookups</h4><ol class="hottest">{bars}</ol>{note}</div>'
            f"{chart.html()}</div></details>"
        )
    inside = f'<div class="tables">{"".join(parts)}</div>'
    if len(parts) <= UNFOLDED:
        return inside
    return f"<details><summary>Hottest ids <small>of {len(parts)} tables</small></summary>{inside}</details>"


def _names(table: Mapping[str, Any]) -> list[str]:
    """Return the ids of the hottest rows by their words, and rows without one by their number.

    >>> _names({"hottest": [[7, 5], [2, 1]], "words": ["red", None]}), _names({"hottest": [[7, 5]]})
    (['red', 'row 2'], ['7'])
    """
    words = table.get("words")
    if words is None:
        return [str(row) for row, _ in table["hottest"]]
    return [f"row {row}" if word is None else word for word, (row, _) in zip(words, table["hottest"], strict=True)]


def _bar(share: float) -> str:
    return f'<span class="track"><span style="width:{100 * min(share, 1):.1f}%"></span></span>'
