"""The importance of features: a bar for the loss that the model loses without each of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from sparrow.reports.formatting import precise
from sparrow.reports.recorded import RecordedRun

IMPORTANCE: Final = "importance.json"
"""The file in the folder of a run, as ``sparrow eval --importance`` writes it."""
_MOST: Final = 40


def importance_html(runs: Sequence[RecordedRun]) -> str:
    """Return a table for each run that knows the importance of its features."""
    return "".join(_of_run(run, len(runs) > 1) for run in runs)


def _of_run(run: RecordedRun, named: bool) -> str:
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
