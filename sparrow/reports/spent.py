"""Where the time of a run went, and its speed without start, compilation, evaluation and saving."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from sparrow.reports.formatting import duration, percent
from sparrow.reports.learning import SPEED
from sparrow.reports.recorded import RecordedRun

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
