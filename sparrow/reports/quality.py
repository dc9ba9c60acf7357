"""The quality of the predictions at the best or last evaluation, by the kind of each task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sparrow.reports.chart import Chart
from sparrow.reports.curves import curve_charts
from sparrow.reports.numbers import number_charts
from sparrow.reports.ranks import at_k_charts, rank_charts
from sparrow.reports.recorded import RecordedRun

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
            charts += CHARTS[kind]([run.name for run in runs], task, suffix, alike)
    return charts


def quality_text(runs: Sequence[RecordedRun]) -> str:
    """Return a sentence on the evaluations that are shown."""
    shown = [(run, run.shown_curves) for run in runs if "step" in run.shown_curves]
    if len(runs) > 1:
        at = "; ".join(f"{run.name} at step {curves['step']:,}" for run, curves in shown)
        return f"Of the best or last evaluation: {at}." if at else ""
    if not shown:
        return ""
    run, curves = shown[0]
    which = "best" if "best" in run.curves else "last"
    return f"Of the {which} evaluation, after step {curves['step']:,}."
