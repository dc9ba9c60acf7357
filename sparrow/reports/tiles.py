"""The tiles at the top of a report: the numbers to look at first, and where the time of a run went."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

from sparrow.reports.facts import final_values, last_values
from sparrow.reports.formatting import compact, duration, percent, precise, size
from sparrow.reports.learning import MEMORY, SPEED
from sparrow.reports.recorded import RecordedRun

MOST: Final = 8
"""Metrics that have a tile."""


class Tile(NamedTuple):
    """A number with its name, and a line below it."""

    name: str
    value: str
    note: str = ""


def tiles(run: RecordedRun) -> list[Tile]:
    """Return the tiles of a run: metrics, the best step, rows and parameters, speed and memory."""
    return [*_metrics(run), *_best(run), *_sizes(run), *_speed(run)]


def tiles_html(run: RecordedRun) -> str:
    """Return the tiles."""
    shown = "".join(
        f"<div><dt>{escape(tile.name).replace('_', '_<wbr>')}</dt><dd>{escape(tile.value)}</dd>"
        f"{f'<dd class=below>{escape(tile.note)}</dd>' if tile.note else ''}</div>"
        for tile in tiles(run)
    )
    return f"<dl class=tiles>{shown}</dl>"


def _metrics(run: RecordedRun) -> list[Tile]:
    last, at_end = last_values(run), run.best is None or run.best.step == run.last_step
    return [
        Tile(name, precise(value), "" if at_end or name not in last else f"at the end {precise(last[name])}")
        for name, value in list(final_values(run).items())[:MOST]
    ]


def _best(run: RecordedRun) -> list[Tile]:
    best, criterion = run.best, run.criterion
    if best is None or criterion is None:
        return []
    epoch = run.epoch_at(best.step)
    of = f"of {run.last_step:,}" + ("" if epoch is None else f", epoch {epoch:.3g}")
    return [Tile(f"best step by {criterion.metric}", f"{best.step:,}", of)]


def _sizes(run: RecordedRun) -> list[Tile]:
    found, sizes = [], run.environment.get("model", {})
    rows, evaluated = (run.environment.get(f"{name}_rows") for name in ("training", "evaluation"))
    if rows:
        found.append(Tile("training rows", f"{rows:,}", f"evaluation {evaluated:,}" if evaluated else ""))
    elif evaluated:
        found.append(Tile("evaluation rows", f"{evaluated:,}"))
    if sizes:
        tables, dense = sizes["table_parameters"], sizes["dense_parameters"]
        tabled = f"in {sizes['tables']} table{'s' * (sizes['tables'] != 1)}"
        found.append(Tile("table rows", _counted(sizes["table_rows"]), tabled))
        found.append(Tile("parameters", _counted(tables + dense), f"{_counted(dense)} outside of tables"))
    return found


def _speed(run: RecordedRun) -> list[Tile]:
    found = []
    if (fast := speed(run)) is not None:
        found.append(Tile("examples per second", f"{fast:,.0f}", "training steps alone"))
    for name, title in MEMORY.items():
        if values := [value for value in run.points("train", name).values if math.isfinite(value)]:
            found.append(Tile(title, size(max(values))))
    return found


def _counted(count: int) -> str:
    """Return a count, rounded where it is long.

    >>> _counted(125_545), _counted(12_345_678)
    ('125,545', '12.3M')
    """
    return f"{count:,}" if count < 1_000_000 else compact(float(f"{count:.3g}"))


PARTS: Final = {
    "training": "training steps",
    "compilation": "compilation of steps",
    "start": "the first batch and step",
    "evaluation": "evaluation",
    "saving": "saving",
}


def seconds(run: RecordedRun) -> dict[str, float]:
    """Return the seconds of each part, over all sessions of a run."""
    totals: dict[str, float] = {}
    for session in run.environment.get("sessions", []):
        for name, value in session.get("seconds", {}).items():
            totals[name] = totals.get(name, 0.0) + float(value)
    return {name: totals[name] for name in (*PARTS, *sorted(set(totals) - set(PARTS))) if totals.get(name, 0) > 0}


def speed(run: RecordedRun) -> float | None:
    """Return the examples per second of training steps: of the last session, else the median of its lines."""
    for session in reversed(run.environment.get("sessions", [])):
        if session.get("examples_per_second"):
            return float(session["examples_per_second"])
    found = sorted(value for value in run.points("train", SPEED).values if math.isfinite(value) and value > 0)
    return found[len(found) // 2] if found else None


def spent_html(runs: Sequence[RecordedRun]) -> str:
    """Return a bar for each run that has recorded its times."""
    parts = []
    for run in runs:
        times = seconds(run)
        total = sum(times.values())
        if not total:
            continue
        title = f"Where {duration(total)} went" + (f", {run.name}" if len(runs) > 1 else "")
        bars = "".join(
            f'<span class="c{index % 6}" style="flex-grow:{value / total:.6f}"></span>'
            for index, value in enumerate(times.values())
        )
        keys = "".join(
            f'<li class="c{index % 6}"><i></i>{escape(PARTS.get(name, name))} <b>{duration(value)}</b> '
            f"<small>{percent(value / total)}</small></li>"
            for index, (name, value) in enumerate(times.items())
        )
        parts.append(f'<h4>{escape(title)}</h4><div class="spent">{bars}</div><ul class="spent-keys">{keys}</ul>')
    return "".join(parts)
